"""Engines: prompts in, completions out."""

"""Sweeps: many runs for one question, each trained once, and their tables."""

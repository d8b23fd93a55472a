"""Engines and samplers: tasks in, episodes out."""

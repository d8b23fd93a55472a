"""Sweeps: many runs of one question, each run once, and one table."""

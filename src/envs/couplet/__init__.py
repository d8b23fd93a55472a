"""Couplet: two poets write at the same time."""

"""Worlds with a team in them: one file or folder each."""

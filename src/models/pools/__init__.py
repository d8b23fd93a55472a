"""Policies and critics in their places: in this process, in others or in actors, and their checkpoints."""

"""Engines as Ray actors."""

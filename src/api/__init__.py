"""Troupe as a library: what notebooks import, and what several commands call."""

"""Base models: the shipped, the hub's and folders, read with care."""

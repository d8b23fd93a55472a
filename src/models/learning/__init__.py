"""A policy's model and how it learns from samples; critics."""

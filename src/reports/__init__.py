"""Metrics, run files and loggers: what a run tells about itself."""

"""The HTML report, statistics and tables."""

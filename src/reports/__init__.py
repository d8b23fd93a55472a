"""The HTML report of a run, and tables on the console."""

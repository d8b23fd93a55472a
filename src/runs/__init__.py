"""The run directory, its writer and its one reader; metrics, loggers and the display of a run."""

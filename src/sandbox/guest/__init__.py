"""The code of a worker process: uses the standard library only, nothing of the rest of Troupe."""

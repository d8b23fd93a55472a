"""What runs inside a worker process: the standard library only, nothing of the rest of Troupe."""

"""Episodes with fixed policies on held-out tasks: requests, assignments, conditions, summaries, tables."""

"""Episodes with given policies on held-out tasks: success, intervals, and what each agent contributes."""

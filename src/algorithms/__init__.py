"""Credit rules (episodes to advantages) and objectives (tensors to a loss)."""

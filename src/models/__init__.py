"""Policies: the trainable weights of a pool and how candidates become token batches."""

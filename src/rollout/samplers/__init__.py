"""Samplers, the topologies of a rollout: tasks in, episodes out."""

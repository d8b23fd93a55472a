"""Grid worlds: Plan-Path and Sokoban, for a tool agent and a planner."""

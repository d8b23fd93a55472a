"""Grid worlds: Plan-Path, Sokoban and Sudoku, for a tool agent and a planner."""

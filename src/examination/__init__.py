"""Evaluation of finished teams: what is asked, who speaks, and the examination itself."""

"""Credit rules: episodes to an advantage for every candidate."""

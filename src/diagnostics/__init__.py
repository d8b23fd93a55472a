"""What each iteration tells about the health of a team, and the alarms that follow from it."""

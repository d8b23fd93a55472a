"""Tables of publications: sweeps of several worlds, claims, the published figures beside, one page."""

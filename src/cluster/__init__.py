"""Ray: settings, actors, weights in its object store."""

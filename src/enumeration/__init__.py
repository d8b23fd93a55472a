"""Expected gradients of algorithms, exactly: all outcomes of a game so small that they can be listed."""

"""What torch leaves to do on a CPU: faster products, its heap, and who waits for whom."""

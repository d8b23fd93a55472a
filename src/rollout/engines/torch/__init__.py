"""The torch engine: continuous batching of shared prompts in this process."""

"""The remote engine: a policy behind an OpenAI-compatible server."""

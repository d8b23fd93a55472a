"""The engine over vLLM (arXiv 2309.06180).  Only ``engine=vllm`` imports it, but for its ``settings``."""

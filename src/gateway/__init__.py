"""An OpenAI-compatible server whose model names are agents."""

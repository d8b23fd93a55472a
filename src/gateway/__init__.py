"""A server in OpenAI's and Anthropic's forms whose model names are agents."""

"""Signalling: a sender describes what it sees in words that have no meaning yet."""

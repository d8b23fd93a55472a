"""Supervised fine-tuning on demonstrations: how the small base models are made."""

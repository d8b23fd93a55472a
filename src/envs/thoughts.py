"""Thoughts of models that reason before they speak."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def spoken(message: str) -> str:
    """``message`` without its thoughts: what follows the last ``</think>``, to a ``<think>`` that is not closed.

    A template may open the thoughts in the prompt, so that a message needs no ``<think>`` of its own.
    """
    return message.rpartition(CLOSE)[2].partition(OPEN)[0]

"""Delegation: an orchestrator calls as many workers as it needs, and answers from their replies."""

from .world import Delegation

__all__ = ["Delegation"]

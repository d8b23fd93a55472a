"""Objectives: tensors to a loss."""

from .base import Objective, ObjectiveOutput
from .cispo import Cispo
from .clipped import ClippedObjective
from .policy_gradient import PolicyGradient

__all__ = ["Cispo", "ClippedObjective", "Objective", "ObjectiveOutput", "PolicyGradient"]

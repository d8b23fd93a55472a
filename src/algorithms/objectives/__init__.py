"""Objectives: tensors to a loss."""

from .base import ClippedObjective, Objective, ObjectiveOutput
from .cispo import Cispo
from .policy_gradient import PolicyGradient

__all__ = ["Cispo", "ClippedObjective", "Objective", "ObjectiveOutput", "PolicyGradient"]

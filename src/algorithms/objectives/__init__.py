"""Objectives: tensors to a loss."""

from .base import Cispo, ClippedObjective, Objective, ObjectiveOutput, PolicyGradient

__all__ = ["Cispo", "ClippedObjective", "Objective", "ObjectiveOutput", "PolicyGradient"]

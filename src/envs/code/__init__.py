"""Code: a coder and a tester; at laptop scale micro-programs, at the papers' scale programming problems."""

from .micro import MicroCode

__all__ = ["MicroCode"]

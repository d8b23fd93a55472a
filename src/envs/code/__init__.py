"""Code: a coder and a tester; at laptop scale micro-programs, at the papers' scale programming problems."""

from .micro import MicroCode
from .problem_set import ProblemSet, ProblemSource
from .programming import Code

__all__ = ["Code", "MicroCode", "ProblemSet", "ProblemSource"]

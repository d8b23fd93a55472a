"""Code: a coder and a tester; at laptop scale micro-programs, at the papers' scale programming problems."""

from .library import Library, Source
from .micro import MicroCode
from .programming import Code

__all__ = ["Code", "Library", "MicroCode", "Source"]

"""Code collaboration: two agents write an auxiliary and a main function at the same time (MAGRPO)."""

from .expert import Expert
from .micro import MicroCollab
from .problems import CodeCollab

__all__ = ["CodeCollab", "Expert", "MicroCollab"]

"""Code collaboration: one agent writes an auxiliary function, the other the main function, at the same time (MAGRPO)."""

from .expert import Expert
from .micro import MicroCollab
from .problems import CodeCollab

__all__ = ["CodeCollab", "Expert", "MicroCollab"]

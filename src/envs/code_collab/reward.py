"""The reward of MAGRPO's code collaboration (arXiv 2508.04652; constants of its code): 4 points at most.

Four levels; the first that fails ends the judgement:

1. structure: 0.4 for an ``aux`` and 0.6 for a main function that return a value; without the main function, no more;
2. syntax: 0.5 if the program of both is Python;
3. tests: 1 times the share of tests that pass;
4. cooperation, if a test passes and there is an ``aux``: 0.5 if main calls it, 1 more if main is no thin wrapper of it,
   0.5 less if the value of a call is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .functions import AUX, has_return
from .usage import Usage

POINTS = 4.0
"""The highest score."""

UsageRule = Literal["statement", "dataflow"]
"""When the value of a call counts as ignored.  ``statement``, as published: the call is a statement of its own.
``dataflow``: also where the value goes to a variable that nothing reads; here ``map(aux, xs)`` is a call, too."""


@dataclass(frozen=True)
class CodeScore:
    """The points of a program by level."""

    structure: float = 0.0
    syntax: float = 0.0
    tests: float = 0.0
    cooperation: float = 0.0

    @property
    def points(self) -> float:
        """In [0, 4]."""
        return self.structure + self.syntax + self.tests + self.cooperation


def structure_points(aux: str, main: str, entry: str) -> float:
    """Level 1; ``aux`` and ``main`` are the sources of the functions, empty where there is none."""
    return 0.4 * has_return(aux, AUX) + 0.6 * has_return(main, entry)


def cooperation_points(use: Usage, rule: UsageRule) -> float:
    """Level 4 of a program that passes a test; in [0, 1.5]."""
    if not (use.called or (rule == "dataflow" and use.passed)):
        return 0.0
    ignored = use.ignored or (rule == "dataflow" and use.unread)
    return 0.5 + (not use.wrapper) - 0.5 * ignored

"""What a coding task is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One test: what a program is given, and what it must give.

    Text both: standard input and output, or, for function calls, the JSON of a list of arguments and of a value.
    """

    given: str
    expected: str

    @property
    def plain(self) -> Check:
        """The same for all tests of standard input that differ in blanks and empty lines alone."""
        return Check(words_of(self.given), words_of(self.expected))


Suite = tuple[Check, ...]
"""Tests, each once."""


@dataclass(frozen=True)
class Ran:
    """What a program did on one test: whether it ended by itself, whether it gave what was expected, and what it gave,
    in words for the prompts."""

    ran: bool
    passed: bool
    got: str


@dataclass(frozen=True)
class Problem:
    """A programming problem.

    ``function`` is what a program must define ("Solution.solve" is a method); where it is None, the program reads
    standard input.  ``setup`` is code that comes before the program (imports, helpers of the statement), ``starter``
    what the statement gives to begin with.  ``examples`` are the tests that the statement shows, ``hidden`` those that
    decide.  ``script`` is a hidden test that no list of values can express: code that defines ``check(candidate)``
    and is asked about the values that the program gave (see :mod:`.running`).  ``reference`` is a solution known to be
    right.  Floats may differ by ``tolerance``, absolute or relative.  ``refused`` counts tests of the source that
    cannot be used and are left out.
    """

    name: str
    statement: str
    hidden: Suite
    examples: Suite = ()
    function: str | None = None
    setup: str = ""
    starter: str = ""
    script: str | None = None
    reference: str | None = None
    tolerance: float = 1e-6
    refused: int = 0

    def __post_init__(self) -> None:
        if not self.hidden and self.script is None:
            raise ValueError(f"problem {self.name} has no hidden tests")
        if self.script is not None and (self.reference is None or self.function is None):
            raise ValueError(f"problem {self.name} has a test script, which needs a function and a reference solution")


def words_of(text: str) -> str:
    """Equal for texts that differ in blanks and empty lines alone."""
    return "\n".join(" ".join(words) for line in text.splitlines() if (words := line.split()))


def contradictory(suite: Suite) -> bool:
    """Whether one input is expected to give two things."""
    return len({check.given for check in suite}) < len(set(suite))

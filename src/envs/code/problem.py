"""The parts of a coding task: tests, their results, and the problem."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..splits import content_digest
from .comparison import JSON, Rule

_EVALUATING: Final = frozenset("eval exec compile __import__ builtins __builtins__ importlib pickle marshal".split())
"""Names by which a test script can run text: an answer would be code then, beside the expected values."""


_MARKS: Final = re.compile(
    r"(?<=\S)[.,:;?]+(?=\s|$) | (?<=[^\W\d_]{2})!+(?=\s|$) | ^\s*[.,:;?!]+\s*$", re.MULTILINE | re.VERBOSE
)
"""Of a sentence's end or middle, or alone on a line; ``n!`` is none."""
_WORDS: Final = re.compile(r"[^\W_]+|\S")


@dataclass(frozen=True)
class Check:
    """One test: the input of a program, and the expected output.

    Both are text: standard input and output, or, for function calls, the JSON of a list of arguments and of a value.
    ``rule`` compares the value of a call with the expected one.  Where it is no ``json``, the values are written as
    :mod:`..sandbox.guest.plain` does, and arguments by name make the input a pair of a list and a dictionary.
    """

    input: str
    expected: str
    rule: Rule = JSON

    @property
    def normalized(self) -> Check:
        """The same for all tests of standard input that differ in blanks and empty lines alone."""
        return Check(normalize(self.input), normalize(self.expected))

    @property
    def in_json(self) -> Check:
        """The same call and value as who writes JSON would have them; the test itself where JSON has none of them."""
        try:
            arguments, named = self.rule.arguments(self.input)
            return self if named else Check(json.dumps(arguments), json.dumps(self.rule.value(self.expected)))
        except TypeError:
            return self


Suite = tuple[Check, ...]
"""Tests, each once."""


@dataclass(frozen=True)
class CheckResult:
    """The result of a program on one test.

    ``ended``: whether it ended by itself; ``passed``: whether its output is the expected one; ``output``: its output,
    in words for the prompts.
    """

    ended: bool
    passed: bool
    output: str


@dataclass(frozen=True)
class Problem:
    """A programming problem.

    ``function`` is the function that a program must define ("Solution.solve" is a method); where it is None, the
    program reads standard input.  ``setup`` is code that comes before the program (imports, helpers of the statement),
    ``starter`` the beginning of the program in the statement.  ``examples`` are the tests that the statement shows,
    ``hidden`` those that decide.  ``script`` is a hidden test that no list of values can express: code that defines
    ``check(candidate)`` and is run on the values that the program gave (see :mod:`.running`); it may not call ``eval``
    or the like, by which an answer would become code beside the expected values.  ``reference`` is a correct solution.
    Floats of JSON may differ by ``tolerance``, which is relative, and printed fractions by it, relative or absolute.
    ``unusable_tests`` counts tests of the data set that are left out.
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
    unusable_tests: int = 0

    def __post_init__(self) -> None:
        if not self.hidden and self.script is None:
            raise ValueError(f"problem {self.name} has no hidden tests")
        if self.script is not None and (self.reference is None or self.function is None):
            raise ValueError(f"problem {self.name} has a test script, which needs a function and a reference solution")
        names = evaluating_names(f"{self.setup}\n{self.script}") if self.script is not None else []
        if names:
            raise ValueError(f"problem {self.name}: its test script may run answers as code, by {', '.join(names)}")

    @property
    def key(self) -> str:
        """Equal for statements that differ in case, blanks and the marks between sentences alone.

        All other signs may change what is asked for: ``a + b`` and ``a - b``, ``1.5`` and ``15``, ``'a'`` and ``a``.
        """
        words = _WORDS.findall(_MARKS.sub(" ", self.statement.casefold()))
        return content_digest(" ".join(words), size=8)

    @property
    def task_data(self) -> Mapping[str, Any]:
        return {"problem": self}

    def contradicts(self, other: Problem) -> bool:
        """Never: two copies of a statement may come with different tests."""
        return False


def normalize(text: str) -> str:
    """Equal for texts that differ in blanks and empty lines alone."""
    return "\n".join(" ".join(words) for line in text.splitlines() if (words := line.split()))


def parse_python(source: str) -> ast.Module:
    """Raises ``SyntaxError``, also where the code is nested too deeply or holds what is no text."""
    try:
        return ast.parse(source)
    except (RecursionError, MemoryError, ValueError) as error:
        raise SyntaxError(f"it cannot be parsed: {error}") from error


def evaluating_names(source: str) -> list[str]:
    """The names in Python code by which it can run text as code; none if the code cannot be read, and so not run."""
    try:
        nodes = list(ast.walk(parse_python(source)))
    except SyntaxError:
        return []
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)} & {"eval", "exec"}
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return sorted(names & _EVALUATING)


def contradictory(suite: Suite) -> bool:
    """Whether two tests expect different outputs of one input."""
    return len({check.input for check in suite}) < len(set(suite))

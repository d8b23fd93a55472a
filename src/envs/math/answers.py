"""Whether a written answer is right: it is read in the sandbox, which knows no expected answer, and compared here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from importlib.resources import files

from ...sandbox import Call, Job, Verdict
from ..execution import Execution
from .numbers import Tree
from .trees import checked, equal

IMPORTS = ("sympy", "mpmath", "latex2sympy2_extended", "antlr4")
"""What the sandbox must have loaded, in its `imports`, to read answers."""

_FIGURES = re.compile(r"[+-]?[0-9]{1,200}(?:\.[0-9]{1,200})?")


@cache
def _reader() -> str:
    """The source of the program that reads answers."""
    return files("troupe.envs.math").joinpath("guest.py").read_text(encoding="utf-8")


class Answers:
    """Reads and compares answers by way of ``execution``; what was read is remembered there."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution

    async def read(self, text: str, *, several: bool = False) -> Tree | None:
        """The tree of a written answer, None where it cannot be read.

        ``several``: the question asks for several answers, so that commas separate them (else 1,000 is a thousand).
        Raises :class:`~troupe.envs.base.WorldFailure` where the sandbox failed.
        """
        (tree,) = await self.read_all([text], several=several)
        return tree

    async def read_all(self, texts: Sequence[str], *, several: bool = False) -> list[Tree | None]:
        """The trees of several answers of one author, read by one program."""
        trees = {text: figures(text) for text in texts}
        rest = [text for text in dict.fromkeys(texts) if trees[text] is None]
        if rest:
            job = Job(_reader(), entry=Call("parse", [rest, several]))
            result = await self.execution.result(job)
            if result.verdict is Verdict.OK and isinstance(result.value, list) and len(result.value) == len(rest):
                trees |= {text: checked(tree) for text, tree in zip(rest, result.value, strict=True)}
        return [trees[text] for text in texts]

    async def equal(self, found: str, expected: str, *, several: bool = False) -> bool:
        """Whether ``found`` says what ``expected`` says.

        The two are read by different programs.  An expected answer that cannot be read is matched by its own text,
        blanks aside.
        """
        if found.split() == expected.split() != []:
            return True
        wanted = await self.read(expected, several=several)
        if wanted is None:
            return "".join(found.split()) == "".join(expected.split()) != ""
        given = await self.read(found, several=several)
        return given is not None and equal(given, wanted)


def figures(text: str) -> Tree | None:
    """A plain number as a tree, which takes no sandbox to read; None for anything else."""
    text = text.strip()
    if not _FIGURES.fullmatch(text):
        return None
    number = Fraction(text)
    if number.denominator == 1:
        return ["int", number.numerator]
    return ["rat", number.numerator, number.denominator]

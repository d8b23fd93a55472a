r"""Whether a written answer is right: it is parsed in the sandbox, without the expected answer, and compared here.

The answer of a text is what it boxes: ``\boxed{...}``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from importlib.resources import files

from ...sandbox import Call, Job, Verdict
from ..execution import Executor
from ..judging import guarded
from .equality import equal
from .values import Tree, check_tree

IMPORTS = ("sympy", "mpmath", "latex2sympy2_extended", "antlr4")
"""The packages that the sandbox must have among its `imports` to read answers."""

_FIGURES = re.compile(r"[+-]?[0-9]{1,200}(?:\.[0-9]{1,200})?")


@cache
def _parser() -> str:
    """The source of the program that parses answers: two modules as one, since the sandbox has no package."""
    folder = files("troupe.envs.math")
    sources = [folder.joinpath(name).read_text(encoding="utf-8") for name in ("printed_answers.py", "answer_parser.py")]
    return re.sub(r"^from (?:__future__|\.\w+) import .*$", "", "\n".join(sources), flags=re.MULTILINE)


class Answers:
    """Reads and compares answers; ``execution`` parses them, and caches the results."""

    def __init__(self, execution: Executor) -> None:
        self.execution = execution

    async def read(self, text: str, *, several: bool = False) -> Tree | None:
        """The tree of a written answer, None where it cannot be read.

        ``several``: the question asks for several answers, so that commas separate them (else 1,000 is a thousand).
        Raises :class:`~troupe.envs.base.WorldFailure` where the sandbox failed.
        """
        return (await self.read_all([text], several=several))[0]

    async def read_all(self, texts: Sequence[str], *, several: bool = False) -> list[Tree | None]:
        """The trees of several answers of one author, read by one program."""
        trees = {text: figures(text) for text in texts}
        rest = [text for text in dict.fromkeys(texts) if trees[text] is None]
        if rest:
            job = Job(_parser(), entry=Call("parse", [rest, several]))
            result = await self.execution.result(job)
            if result.verdict is Verdict.OK and isinstance(result.value, list) and len(result.value) == len(rest):
                trees |= {text: guarded(None, check_tree, tree) for text, tree in zip(rest, result.value, strict=True)}
        return [trees[text] for text in texts]

    async def equal(self, answer: str, expected: str, *, several: bool = False, printed: bool = False) -> bool:
        """Whether ``answer`` equals ``expected``.

        The two are read by different programs.  An expected answer that cannot be read is compared as text, see
        :func:`spaced`.  ``printed``: a program wrote ``answer``, so that [1, 2] may be its list, and E its constant.
        """
        if answer.split() == expected.split() != []:
            return True
        expected_tree = await self.read(expected, several=several)
        if expected_tree is None:
            return spaced(answer) == spaced(expected) != ""
        tree = await self.read(answer, several=several)
        return tree is not None and any(
            guarded(False, equal, reading, expected_tree)
            for reading in _readings(tree, several=several, printed=printed)
        )


def _readings(tree: Tree, *, several: bool, printed: bool) -> list[Tree]:
    """What an answer may mean: between square brackets stand the ends of an interval, or the members of a list."""
    if (several or printed) and tree[0] == "interval" and tree[3:] == [True, True]:
        return [tree, ["list", *tree[1:3]]]
    return [tree, ["const", "e"]] if printed and tree == ["sym", "E"] else [tree]


def spaced(text: str) -> str:
    """``text`` without blanks, but one between two words or numbers, which it keeps apart."""
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(text.split()))


def figures(text: str) -> Tree | None:
    """A plain number as a tree, which takes no sandbox to read; None for anything else."""
    text = text.strip()
    if not _FIGURES.fullmatch(text):
        return None
    number = Fraction(text)
    if number.denominator == 1:
        return ["int", number.numerator]
    return ["rat", number.numerator, number.denominator]


_BRACKET = re.compile(r"\\.|[{}]", re.DOTALL)
"""A bracket, or a command of one sign: a bracket after a backslash is none, after a line break it is one."""
_BOX = re.compile(
    r"\\(?:boxed|fbox)\s*(?=\{)"
    r"|\\boxed(?:\s*(?=[-+(\[]*\.?\d)|\s+(?=[-+]?[A-Za-z](?![A-Za-z])))([-+]?[A-Za-z]|[^\s$\\{}]+)"
)
"""Without a brace: of a number, or of one letter that begins no word."""


def boxed_answers(text: str) -> list[str]:
    r"""The contents of the outermost ``\boxed{...}``, ``\fbox{...}`` and ``\boxed 7``, in order; an unclosed one counts
    for nothing."""
    closing: dict[int, int] = {}  # of each opening bracket, in one pass: many may never be closed
    open_places: list[int] = []
    for bracket in _BRACKET.finditer(text):
        if bracket[0] == "{":
            open_places.append(bracket.start())
        elif bracket[0] == "}" and open_places:
            closing[open_places.pop()] = bracket.start()
    answers, end = [], 0
    for match in _BOX.finditer(text):
        if match.start() < end:
            continue
        if match[1] is not None:
            answers.append(match[1])
        elif match.end() in closing:
            end = closing[match.end()]
            answers.append(text[match.end() + 1 : end])
    return answers

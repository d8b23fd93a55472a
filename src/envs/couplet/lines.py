"""The lines of a couplet: their words, how a message is read, and the score of two lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

FAMILIES: tuple[tuple[str, str], ...] = (("night", "light"), ("rain", "plain"), ("moon", "spoon"), ("day", "way"))
"""Words that rhyme with each other."""

SUBJECTS: tuple[str, ...] = tuple(
    "river stone forest garden mountain meadow castle harbour window candle mirror ladder bridge tower valley island "
    "desert orchard feather shadow thunder blossom lantern anchor compass harvest willow pebble kettle saddle".split()
)
"""The subjects of lines."""

FILLERS: tuple[str, ...] = tuple("a and beside beyond by from in into my of on over the through under with".split())

FAMILY: dict[str, int] = {word: family for family, words in enumerate(FAMILIES) for word in words}
"""The family of each rhyming word."""

LEXICON = frozenset({*FAMILY, *SUBJECTS, *FILLERS})


@dataclass(frozen=True)
class Half:
    """One poet's part of a task: the ``subjects`` that its line must name, and the ``rhymes`` that it may end with."""

    subjects: tuple[str, ...]
    rhymes: tuple[str, ...]

    @property
    def families(self) -> dict[int, str]:
        """Family -> the poet's word of it, in the order of :data:`FAMILIES`."""
        return {FAMILY[word]: word for word in sorted(self.rhymes, key=FAMILY.__getitem__)}


def read_line(text: str, max_words: int) -> tuple[str, ...]:
    """The words of a line; none where a word is unknown or repeated, or where there are more than ``max_words``."""
    words = tuple(text.split())
    if len(words) > max_words or len(set(words)) < len(words) or not LEXICON.issuperset(words):
        return ()
    return words


@dataclass(frozen=True)
class Fit:
    """How well two lines fit.  ``subjects``: the share of their subjects that they name.  ``length``: 1 where they
    have equally many words, 0.5 where the numbers differ by one, else 0.  ``rhyme``: 1 where each ends with a rhyme of
    its poet and the two are of one family, else 0.  All are 0 where a line is empty.
    """

    subjects: float = 0.0
    length: float = 0.0
    rhyme: float = 0.0

    @property
    def complete(self) -> bool:
        return self.subjects == self.length == self.rhyme == 1

    @property
    def score(self) -> float:
        """In [0, 1]; 1 where all is fulfilled, 0 where no subject is named."""
        return self.subjects * (1 + self.length + self.rhyme) / 3


def fit(halves: Sequence[Half], lines: Sequence[Sequence[str]]) -> Fit:
    """How well the two poets' ``lines`` fulfil their ``halves`` of the task."""
    if not all(lines):
        return Fit()
    is_named = [subject in line for half, line in zip(halves, lines, strict=True) for subject in half.subjects]
    ends = [FAMILY[line[-1]] if line[-1] in half.rhymes else None for half, line in zip(halves, lines, strict=True)]
    difference = abs(len(lines[0]) - len(lines[1]))
    return Fit(
        subjects=sum(is_named) / len(is_named),
        length={0: 1.0, 1: 0.5}.get(difference, 0.0),
        rhyme=float(ends[0] is not None and ends[0] == ends[1]),
    )


def compose(subjects: Sequence[str], end: str, length: int, rng: Random) -> str:
    """A line of ``length`` words, at least one more than ``subjects``: these in their order, fillers before each, the
    last first, and ``end``.
    """
    fillers = rng.sample(FILLERS, length - len(subjects) - 1)
    line = [end]
    for subject in reversed(subjects):
        line = [*fillers[:1], subject, *line]
        fillers = fillers[1:]
    return " ".join([*fillers, *line])


def vocabulary() -> list[str]:
    """Every word of observations and lines."""
    words = "first second couplet subjects rhymes mine theirs none malformed".split()
    return [*words, *SUBJECTS, *FILLERS, *FAMILY]

"""The reward of MAGRPO's writing collaboration (arXiv 2508.04652; constants of its code): 3 points at most.

Four levels, each judged only if the one before it earned something:

1. structure, 0.5: both texts have a number of words within the bounds;
2. length, 1: the second text is longer than the first by the right factor, in characters;
3. words, 0.5: it has more different words, by the right factor;
4. style, 1: 0.4 for transition words and 0.6 for a common vocabulary of the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import inf

from .transitions import STOP_WORDS, TRANSITIONS

POINTS = 3.0
"""The highest score."""


@dataclass(frozen=True)
class Band:
    """1 from ``low`` to ``high``, falling linearly to 0 at ``least`` and at ``most``."""

    least: float
    low: float
    high: float = inf
    most: float = inf

    def __post_init__(self) -> None:
        if not self.least < self.low <= self.high <= self.most or self.high == self.most != inf:
            raise ValueError(
                f"a band needs least < low <= high < most, got {self.least}, {self.low}, {self.high}, {self.most}"
            )

    def __call__(self, value: float) -> float:
        """In [0, 1]."""
        if value < self.low:
            return max(0.0, (value - self.least) / (self.low - self.least))
        return 1.0 if value <= self.high else max(0.0, (self.most - value) / (self.most - self.high))


@dataclass(frozen=True)
class Style:
    """The constants of one kind of text.

    ``words``: bounds of the number of words of each text.  ``length`` and ``vocabulary`` judge the second text's number
    of characters, and of different words, over the first's.  ``transitions_in_both``: transition words are counted in
    both texts, else in the second alone.  ``common``: the Jaccard index of the two vocabularies that earns all.
    """

    words: tuple[int, int]
    length: Band
    vocabulary: Band
    transitions_in_both: bool
    common: float


STYLES: Mapping[str, Style] = {
    "tldr": Style((8, 256), Band(1.1, 1.6, 3.2, 5.0), Band(1.3, 2.0), transitions_in_both=False, common=0.03),
    "arxiv": Style(
        (128, 256), Band(0.8, 1.3, 1.6, 2.0), Band(0.5, 0.7, 1.3, 1.7), transitions_in_both=True, common=0.23
    ),
    # The small-scale variant: lines of a few words.
    "lines": Style((3, 16), Band(1.0, 1.6, 2.4, 3.2), Band(1.0, 1.6), transitions_in_both=False, common=0.2),
}
"""The constants by kind: the two of the publication, and one for the laptop."""


@dataclass(frozen=True)
class TextScore:
    """The points of two texts by level."""

    structure: float = 0.0
    length: float = 0.0
    words: float = 0.0
    style: float = 0.0

    @property
    def points(self) -> float:
        """In [0, 3]."""
        return self.structure + self.length + self.words + self.style


def score(first: str, second: str, style: Style) -> TextScore:
    """The points of two texts."""
    low, high = style.words
    if not all(low <= len(text.split()) <= high for text in (first, second)):
        return TextScore()
    length = style.length(len(second.strip()) / len(first.strip()))
    if not length:
        return TextScore(0.5)
    ours, theirs = vocabulary(first), vocabulary(second)
    words = 0.5 * style.vocabulary(len(theirs) / len(ours)) if ours else 0.0
    if not words:
        return TextScore(0.5, length)
    transition = transition_share(f"{first}\n{second}" if style.transitions_in_both else second)
    return TextScore(0.5, length, words, 0.4 * transition + 0.6 * min(1.0, jaccard(ours, theirs) / style.common))


def vocabulary(text: str) -> frozenset[str]:
    """The different words of ``text`` in lower case, without the signs around them."""
    return frozenset(re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower()))


def transition_share(text: str) -> float:
    """0.4 for transition words of one purpose and 0.05 for each further one; 0 where there are none."""
    purposes = sum(pattern.search(text.lower()) is not None for pattern in _patterns())
    return 0.4 + 0.05 * (purposes - 1) if purposes else 0.0


def jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    """The Jaccard index of two vocabularies without stop words; 0 where both are empty."""
    first, second = first - STOP_WORDS, second - STOP_WORDS
    return len(first & second) / len(first | second) if first | second else 0.0


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """A pattern for each purpose.  Words must be whole: the library also counts them within other words."""
    return tuple(re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)") for words in TRANSITIONS.values())

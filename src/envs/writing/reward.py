"""The reward of MAGRPO's writing collaboration (arXiv 2508.04652; constants of its code): 3 points at most.

Four levels, each judged only if the one before it is within its bounds:

1. structure, 0.5: both texts have a number of words within the bounds;
2. length, 1: the second text is longer than the first by the right factor, in characters;
3. words, 0.5: it has more different words, by the right factor;
4. style, 1: 0.4 for transition words and 0.6 for a common vocabulary of the two.

Texts come without blanks around them.

Transition words by their purpose, and words that do not count as content.

The publication (arXiv 2508.04652) does not print its lists.  These are the words of its public code, ``rewards/`` of
github.com/OpenMLRL/LLM_Collab_Writing, whose two kinds of text share them; the small-scale variant has its own.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


TRANSITIONS: Final[dict[str, tuple[str, ...]]] = {
    "elaboration": _words(
        "furthermore, moreover, additionally, also, besides, in addition, what is more, not only, as well as, "
        "along with, coupled with, together with, likewise, similarly, equally important, by the same token, "
        "in the same way, correspondingly, in like manner, comparatively, analogously"
    ),
    "examples": _words(
        "for example, for instance, specifically, particularly, namely, such as, including, especially, "
        "in particular, to illustrate, as an illustration, case in point, to demonstrate, as evidence, "
        "to exemplify, notably, markedly, chiefly, mainly, primarily, above all, most importantly"
    ),
    "explanation": _words(
        "that is, in other words, to put it simply, to clarify, indeed, in fact, actually, clearly, obviously, "
        "to put it another way, to rephrase, more precisely, specifically speaking, what this means is, "
        "the point is, essentially, basically, fundamentally, at its core, in essence, simply put, "
        "stated differently"
    ),
    "cause_effect": _words(
        "therefore, thus, consequently, as a result, hence, accordingly, for this reason, due to this, "
        "because of this, so, then, thereby, wherefore, thence, ergo, as a consequence, in consequence, "
        "it follows that, this leads to, this results in, this causes, this brings about, owing to, on account of, "
        "thanks to, resulting from"
    ),
    "contrast": _words(
        "however, nevertheless, nonetheless, on the other hand, in contrast, while, whereas, although, even though, "
        "despite this, but, yet, still, conversely, on the contrary, rather, instead, alternatively, otherwise, "
        "in opposition, by contrast, contrarily, notwithstanding, regardless, all the same, even so, "
        "be that as it may, in any case, at any rate"
    ),
    "sequence": _words(
        "first, second, third, next, then, after that, finally, lastly, initially, subsequently, meanwhile, "
        "to begin with, to start with, in the beginning, at first, at the outset, primarily, secondly, thirdly, "
        "following this, afterward, later, later on, in the meantime, simultaneously, concurrently, "
        "at the same time, in conclusion, to conclude, ultimately, in the end, to summarize, in summary"
    ),
    "emphasis": _words(
        "indeed, certainly, surely, undoubtedly, without doubt, definitely, absolutely, positively, unquestionably, "
        "indubitably, of course, naturally, obviously, clearly, evidently, manifestly, undeniably, admittedly, "
        "granted, to be sure, in fact, as a matter of fact, notably, significantly"
    ),
    "summary": _words(
        "in summary, in conclusion, to summarize, to conclude, in short, in brief, briefly, to sum up, "
        "on the whole, overall, all in all, in essence, essentially, basically, fundamentally, "
        "in the final analysis, after all, ultimately, in the end, when all is said and done, the bottom line is"
    ),
    "comparison": _words(
        "similarly, likewise, in the same way, equally, just as, comparable to, in comparison, by the same token, "
        "correspondingly, in like manner, along the same lines, in similar fashion, analogously, by analogy, "
        "just like, much like, as with"
    ),
    "concession": _words(
        "although, though, even though, while, whereas, despite, in spite of, regardless of, notwithstanding, "
        "admittedly, granted, even if, be that as it may, nevertheless, nonetheless, however, yet, still, "
        "all the same"
    ),
    "condition": _words(
        "if, unless, provided that, assuming that, supposing that, in case, in the event that, on condition that, "
        "given that, as long as, so long as, only if, even if, whether or not, should, were, had, otherwise, "
        "or else"
    ),
    "time": _words(
        "when, while, as, after, before, until, since, during, meanwhile, simultaneously, at the same time, "
        "concurrently, previously, formerly, earlier, later, afterward, subsequently, eventually, finally, "
        "recently, lately, nowadays, currently, presently, immediately"
    ),
}
"""Purpose -> words and phrases, in lower case."""

STOP_WORDS: Final = frozenset(
    "a all also an and any are as at bad be been being both but by can could did do does each few first for "
    "from good great had has have he her here him his how i if in is it its just last left little long low many "
    "may me might more most much must my new no not now of old on only or other our own right same shall should "
    "so some such than that the their them then there these they this those to too us very was we were what "
    "when where which who why will with would you your".split()
)

LINKS: Final = ("also", "but", "because", "thus", "then", "indeed")
"""Transition words of the small-scale variant, each of another purpose."""

LINE_STOP_WORDS: Final = frozenset(
    "a also and because but by from in into my of on over the then through under with".split()
)
"""Of the words of the small-scale variant."""


POINTS = 3.0
"""The highest score."""


@dataclass(frozen=True)
class Band:
    """1 from ``low`` to ``high``, falling linearly to 0 at ``least`` and at ``most``.

    ``with_ends``: whether these two values, worth nothing, are still within its bounds.
    """

    least: float
    low: float
    high: float = inf
    most: float = inf
    with_ends: bool = True

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

    def admits(self, value: float) -> bool:
        """Whether ``value`` is within its bounds."""
        if self.with_ends:
            return self.least <= value <= self.most
        return self.least < value < self.most


@dataclass(frozen=True)
class Style:
    """The constants of one kind of text.

    ``words``: bounds of the number of words of each text.  ``length`` and ``vocabulary`` judge the second text's number
    of characters, and of different words, over the first's.  ``transitions_in_both``: transition words are counted in
    both texts, else in the second alone.  ``common``: the Jaccard index of the two vocabularies that earns all.
    ``transitions``: transition words by purpose; ``whole``: they count as whole words alone, not within others.
    ``stop_words`` are no content.
    """

    words: tuple[int, int]
    length: Band
    vocabulary: Band
    transitions_in_both: bool
    common: float
    transitions: tuple[tuple[str, ...], ...] = tuple(TRANSITIONS.values())
    whole: bool = False
    stop_words: frozenset[str] = STOP_WORDS


STYLES: Mapping[str, Style] = {
    "tldr": Style((8, 256), Band(1.1, 1.6, 3.2, 5.0), Band(1.3, 2.0), transitions_in_both=False, common=0.03),
    "arxiv": Style(
        (128, 256), Band(0.8, 1.3, 1.6, 2.0), Band(0.5, 0.7, 1.3, 1.7), transitions_in_both=True, common=0.23
    ),
    # The small-scale variant: lines of a few words, some of which (castle, shadow) have transition words within.
    "lines": Style(
        (3, 16),
        Band(1.0, 1.6, 2.4, 3.2, with_ends=False),
        Band(1.0, 1.6, with_ends=False),
        transitions_in_both=False,
        common=0.2,
        transitions=tuple((link,) for link in LINKS),
        whole=True,
        stop_words=LINE_STOP_WORDS,
    ),
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
    ratio = len(second) / len(first)
    if not style.length.admits(ratio):
        return TextScore(0.5)
    length = style.length(ratio)
    ours, theirs = vocabulary(first), vocabulary(second)
    ratio = len(theirs) / len(ours) if ours else 0.0
    if not style.vocabulary.admits(ratio):
        return TextScore(0.5, length)
    transition = transition_share(first + second if style.transitions_in_both else second, style)
    common = min(1.0, jaccard(ours - style.stop_words, theirs - style.stop_words) / style.common)
    return TextScore(0.5, length, 0.5 * style.vocabulary(ratio), 0.4 * transition + 0.6 * common)


def vocabulary(text: str) -> frozenset[str]:
    """The different words of ``text`` in lower case; an apostrophe or a hyphen parts two."""
    return frozenset(re.findall(r"\w+", text.lower()))


def transition_share(text: str, style: Style) -> float:
    """0.4 for transition words of one purpose and 0.05 for each further one; 0 where there are none.

    Twelve purposes earn 0.95: of the 3 points, 2.98 can be had.
    """
    place: Container[str] = vocabulary(text) if style.whole else text.lower()
    purposes = sum(any(word in place for word in words) for words in style.transitions)
    return 0.4 + 0.05 * (purposes - 1) if purposes else 0.0


def jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    """The Jaccard index of two sets; 1 where both are empty."""
    return len(first & second) / len(first | second) if first | second else 1.0

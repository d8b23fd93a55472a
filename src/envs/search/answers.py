"""Exact match and F1 of short answers, with the normalisation of SQuAD (Rajpurkar et al., arXiv 1606.05250, and its
evaluation script); HotpotQA's rule for yes and no (Yang et al., arXiv 1809.09600, and its script).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable

VERDICTS = frozenset({"yes", "no", "noanswer"})
"""Answers that share no words with another: they are equal to it or wrong."""
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """``text`` in lower case, without ASCII punctuation, without English articles, its words separated by one blank."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(answer: str, accepted: Iterable[str]) -> bool:
    """Whether ``answer`` is one of ``accepted``, normalised.  An answer of which nothing is left is none of them."""
    normal = normalise(answer)
    return bool(normal) and any(normal == normalise(each) for each in accepted)


def f1(answer: str, accepted: Iterable[str]) -> float:
    """The highest F1, in [0, 1], of the words of ``answer`` (as a multiset) and those of one of ``accepted``."""
    return max((_f1(normalise(answer), normalise(each)) for each in accepted), default=0.0)


def contains(text: str, answer: str) -> bool:
    """Whether ``text`` has the words of ``answer``, normalised, in a row."""
    normal = normalise(answer)
    return bool(normal) and f" {normal} " in f" {normalise(text)} "


def _f1(answer: str, expected: str) -> float:
    if answer != expected and not VERDICTS.isdisjoint((answer, expected)):
        return 0.0
    words, others = answer.split(), expected.split()
    common = (Counter(words) & Counter(others)).total()
    return 2 * common / (len(words) + len(others)) if common else 0.0

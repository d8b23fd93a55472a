"""Published data sets of questions about facts: one class each, for hub names and local files of the same columns, or
of their authors'.

Training: :class:`NaturalQuestions`, :class:`HotpotQA`.  Evaluation, of several hops: :class:`HotpotQA`,
:class:`TwoWikiMultiHopQA`, :class:`MuSiQue`, :class:`Bamboogle`.

Exact match and F1 of short answers, with the normalisation of SQuAD (Rajpurkar et al., arXiv 1606.05250, and its
evaluation script); HotpotQA's rule for yes and no (Yang et al., arXiv 1809.09600, and its script).
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..datasets import CellError, Columns, PublishedSource, UnusableRow, paired
from ..splits import content_digest

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


@dataclass(frozen=True)
class SearchQuestion:
    """A question, the ``answers`` that are accepted, and the titles of the passages that support them, where known."""

    text: str
    answers: tuple[str, ...]
    supports: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Equal for questions that differ in case, blanks or punctuation alone."""
        text = unicodedata.normalize("NFKC", self.text).casefold()
        return content_digest("".join(sign for sign in text if sign.isalnum()), size=8)

    @property
    def task_data(self) -> Mapping[str, Any]:
        return {"question": self.text, "answers": self.answers, "supports": self.supports}

    def contradicts(self, other: SearchQuestion) -> bool:
        """Whether the two have no answer in common."""
        return {normalise(each) for each in self.answers}.isdisjoint(normalise(each) for each in other.answers)


class SearchSource(PublishedSource[SearchQuestion]):
    """A data set of questions."""


class NaturalQuestions(SearchSource):
    """Natural Questions, open (Kwiatkowski et al. 2019; Lee et al., arXiv 1906.00300): 87,925 training questions."""

    hub = "google-research-datasets/nq_open"
    cells: ClassVar[Columns] = {"question": str, "answer": list}

    def item(self, row: Mapping[str, Any]) -> SearchQuestion:
        return _question(row["question"], row["answer"])


class HotpotQA(SearchSource):
    """HotpotQA (arXiv 1809.09600): questions of two hops, with the titles of their paragraphs."""

    hub = "hotpotqa/hotpot_qa"
    config: str | None = "distractor"
    cells: ClassVar[Columns] = {"question": str, "answer": str, "supporting_facts": (dict, list)}

    def item(self, row: Mapping[str, Any]) -> SearchQuestion:
        titles = [title for title, _ in pairs(row, "supporting_facts", "title", "sent_id")]
        return _question(row["question"], [row["answer"]], titles)


class TwoWikiMultiHopQA(HotpotQA):
    """2WikiMultiHopQA (arXiv 2011.01060), in HotpotQA's columns: two to four hops."""

    hub, config = "framolfese/2WikiMultihopQA", None


class MuSiQue(SearchSource):
    """MuSiQue (arXiv 2108.00573): two to four hops; questions without an answer are left out."""

    hub = "dgslibisey/MuSiQue"
    cells: ClassVar[Columns] = {
        "question": str,
        "answer": str,
        "answer_aliases": list,
        "answerable": bool,
        "paragraphs": list,
    }

    def item(self, row: Mapping[str, Any]) -> SearchQuestion:
        if not row["answerable"]:
            raise UnusableRow("not answerable")
        try:
            titles = [paragraph["title"] for paragraph in row["paragraphs"] if paragraph["is_supporting"]]
        except (KeyError, TypeError) as error:
            raise CellError("paragraphs", "expected title and is_supporting of each") from error
        return _question(row["question"], [row["answer"], *row["answer_aliases"]], titles)


class Bamboogle(SearchSource):
    """Bamboogle (arXiv 2210.03350): 125 questions of two hops."""

    hub, split = "chiayewken/bamboogle", "test"
    cells: ClassVar[Columns] = {"Question": str, "Answer": str}

    def item(self, row: Mapping[str, Any]) -> SearchQuestion:
        return _question(row["Question"], [row["Answer"]], column="Question")


def pairs(row: Mapping[str, Any], column: str, first: str, second: str) -> list[tuple[str, Any]]:
    """The pairs of a cell, of a text and something: two lists on the hub, one of pairs in the authors' files."""
    cell = row[column]
    found = paired(cell, first, second) if isinstance(cell, dict) else cell
    if found is not None and all(_is_pair(each) for each in found):
        return [(text, other) for text, other in found]
    raise CellError(column, f"expected {first}, texts, and as many {second}, or a list of such pairs")


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str)


def _question(
    text: str, answers: Iterable[Any], supports: Iterable[str] = (), column: str = "question"
) -> SearchQuestion:
    """A question with the answers that can be said, each once."""
    if not text.strip():
        raise CellError(column, "it is empty")
    sayable = tuple(dict.fromkeys(each.strip() for each in answers if isinstance(each, str) and normalise(each)))
    if not sayable:
        raise UnusableRow("no answer is left after normalisation")
    return SearchQuestion(text.strip(), sayable, tuple(dict.fromkeys(supports)))

"""The articles about which is written: rows of data sets, and small ones that are made of words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from ..couplet.lines import FILLERS, SUBJECTS
from ..datasets import DataSource, Table, UnusableRow
from ..splits import content_digest
from .reward import vocabulary
from .transitions import LINKS

SPLIT: Final = "|"
"""Between the lines of one agent alone."""

KEYWORDS = 6
"""Words of a small article."""


@dataclass(frozen=True)
class Article:
    """A text to write about."""

    text: str

    @property
    def key(self) -> str:
        """Equal for texts that differ in case, blanks or punctuation alone."""
        return content_digest("".join(sign for sign in self.text.casefold() if sign.isalnum()), size=8)

    @property
    def task_data(self) -> Mapping[str, Any]:
        return {"article": self.text}

    def contradicts(self, other: Article) -> bool:
        """Never: an article has no answer."""
        return False


COLUMNS: Final = {"tldr": "prompt", "arxiv": "abstract_text"}
"""The column that is read, by kind of table."""


class ArticleSource(DataSource[Article]):
    """A table of articles.  ``kind``: ``tldr`` (column ``prompt``, which ends with ``TL;DR:``) or ``arxiv`` (column
    ``abstract_text``).  ``path``, ``split``, ``config`` and ``revision`` are those of :class:`..datasets.table.Table`.
    """

    def __init__(
        self, kind: str, path: str, split: str = "train", config: str | None = None, revision: str | None = None
    ) -> None:
        if kind not in COLUMNS:
            raise ValueError(f"env.train: kind={kind} of {path} is unknown; known are {', '.join(COLUMNS)}")
        self.column = COLUMNS[kind]
        super().__init__(Table(path, split, config, revision), {self.column: str})

    def item(self, row: Mapping[str, Any]) -> Article:
        text = row[self.column].strip().removesuffix("TL;DR:").strip()
        if not vocabulary(text):
            raise UnusableRow("no words")
        return Article(text)


def small_article(rng: Random) -> Article:
    """:data:`KEYWORDS` different subjects."""
    return Article(" ".join(sorted(rng.sample(SUBJECTS, KEYWORDS))))


def small_words() -> list[str]:
    """Every word of small articles, their prompts, and the lines about them."""
    return [
        SPLIT,
        *"concise detailed solo writing article mine theirs none malformed".split(),
        *SUBJECTS,
        *FILLERS,
        *LINKS,
    ]

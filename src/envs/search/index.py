"""A collection of passages that is searched by BM25 (library: bm25s)."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from ...errors import AbsentError

COMMAND = "python -m troupe.envs.search.build CORPUS"
"""What makes an index of a corpus, before the index's folder."""
_TOKENS: Final[Mapping[str, Any]] = {"stopwords": "en", "show_progress": False}
"""How the library reads passages and queries; its other settings are its own: words of two letters or more."""


class AbsentIndexError(AbsentError):
    """There is no index in the folder, or one that cannot be read; the message has the remedy."""


@dataclass(frozen=True)
class Passage:
    """A piece of text with the title of its document."""

    title: str
    text: str


class Index:
    """BM25 (Lucene's variant, k1 = 1.5, b = 0.75) over titles and texts, in lower case and without English stop words.

    ``passages`` are rows with the keys of :class:`Passage`; ``scorer`` is a ``bm25s.BM25`` over them.
    """

    def __init__(self, passages: Sequence[Mapping[str, str]], scorer: Any) -> None:
        self.passages, self.scorer = passages, scorer

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> Index:
        """The index of ``passages``.  Raises ``ValueError`` where they have no words."""
        words = _library().tokenize([f"{passage.title} {passage.text}" for passage in passages], **_TOKENS)
        if not words.vocab:
            raise ValueError("an index needs passages with words in them")
        scorer = _library().BM25(backend="numpy")
        scorer.index(words, create_empty_token=False, show_progress=False)
        return cls([asdict(passage) for passage in passages], scorer)

    def save(self, folder: Path) -> None:
        """Write the index; ``folder`` is there only once it is complete.  Raises ``FileExistsError``."""
        if folder.exists():
            raise FileExistsError(f"{folder} is there already")
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        self.scorer.save(partial, corpus=self.passages, show_progress=False, raise_on_serialization_error=True)
        partial.rename(folder)

    @classmethod
    def load(cls, folder: Path, key: str) -> Index:
        """The index in ``folder``, whose scores and passages stay in files.

        Raises :class:`AbsentIndexError`, which begins with ``key``.
        """
        if not folder.is_dir():
            raise AbsentIndexError(f"{key}={folder}: there is no index; make one with `{COMMAND} {folder}`")
        try:
            scorer = _library().BM25.load(folder, load_corpus=True, mmap=True, show_progress=False, verbosity=0)
            if scorer.corpus is None or len(scorer.corpus) != scorer.scores["num_docs"]:
                raise ValueError("its passages are not those of its scores")
            Passage(**scorer.corpus[len(scorer.corpus) - 1])  # a file that was cut lacks its end
        except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
            raise AbsentIndexError(
                f"{key}={folder} is no whole index ({error}); delete it and make one with `{COMMAND} {folder}`"
            ) from error
        return cls(scorer.corpus, scorer)

    def best(self, query: str, count: int) -> list[int]:
        """The places of the passages that share a word with ``query``, ``count`` at most, the best first; of equally
        good ones that which comes first.  May be called from several threads at once.
        """
        words = _library().tokenize(query, return_ids=False, **_TOKENS)[0]
        if not words:
            return []
        scores = self.scorer.get_scores(words)
        least = np.partition(scores, -count)[-count] if count < len(scores) else 0.0
        places = np.flatnonzero((scores >= least) & (scores > 0))
        return [int(place) for place in places[np.argsort(-scores[places], kind="stable")][:count]]

    def at(self, places: Sequence[int]) -> tuple[Passage, ...]:
        """The passages at ``places``."""
        return tuple(Passage(**self.passages[place]) for place in places)

    def search(self, query: str, count: int) -> tuple[Passage, ...]:
        """The passages at :meth:`best`."""
        return self.at(self.best(query, count))


@cache
def _library() -> ModuleType:
    """bm25s, without its messages: it sets its logger to all of them."""
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s

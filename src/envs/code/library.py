"""The problems of data sets, by split: disjoint by statement, counted with what was left out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random

from ...experience import Split, Task
from ..grid.board import split_of
from ..rows import DataError, Table, named, rows
from .problem import Problem
from .sources import SOURCES, Malformed, Unusable

_log = logging.getLogger(__name__)


def digest_of(statement: str) -> str:
    """Equal for statements that differ in case, blanks and punctuation alone."""
    words = "".join(sign if sign.isalnum() else " " for sign in statement.casefold()).split()
    return blake2b(" ".join(words).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Source:
    """A table of problems; ``kind``, one of :data:`.sources.SOURCES`, says what its columns are.

    ``path``, ``split``, ``config`` and ``revision`` are those of :class:`..rows.Table`.
    """

    kind: str
    path: str
    split: str = "train"
    config: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in SOURCES:
            raise ValueError(f"env.data: kind={self.kind} of {self.path} is unknown; known are {', '.join(SOURCES)}")

    def problems(self, counts: Counter[str]) -> Iterator[Problem]:
        """The problems of the rows; what is left out is counted.  Raises :class:`..rows.DataError`."""
        kind = SOURCES[self.kind]
        key = next(iter(kind.columns))
        for index, row in enumerate(rows(Table(self.path, self.split, self.config, self.revision), kind.columns)):
            try:
                problem = kind.problem(f"{self.kind}/{row[key]}", row)
            except Unusable as reason:
                counts[f"rows left out: {reason}"] += 1
                continue
            except Malformed as error:
                raise DataError(f"{self.path}, row {index}, {error}") from error
            counts["refused tests"] += problem.refused
            yield problem


@dataclass(frozen=True)
class Library:
    """Where problems come from: ``train`` gives the train and validation splits, ``test`` the test split.

    Without ``test`` the one table is split in three.  Within a table a problem's split is decided by its statement.  A
    statement occurs once, in the test split where it is in both tables.

    ``max_hidden_train`` hidden tests of a training problem, the first, are used (the paper: 4; 0: all).  Validation and
    test problems always have all of theirs: fewer would let wrong programs pass.
    """

    train: Source
    test: Source | None = None
    max_hidden_train: int = 0

    def __post_init__(self) -> None:
        if self.max_hidden_train < 0:
            raise ValueError(f"env.data.max_hidden_train must be at least 0, got {self.max_hidden_train}")

    def read(self) -> Shelves:
        """All problems.  Raises :class:`..rows.DataError` for a cell that is not as the data set's card says."""
        shelves = Shelves()
        if self.test is not None:
            with named("env.data.test"):
                for problem in self.test.problems(shelves.counts):
                    shelves.put(problem, "test")
        with named("env.data.train"):
            for problem in self.train.problems(shelves.counts):
                split = split_of(digest_of(problem.statement))
                split = "train" if self.test is not None and split == "test" else split
                shelves.put(_shortened(problem, self.max_hidden_train) if split == "train" else problem, split)
        _log.info("%s: %s", self.train.path, ", ".join(f"{n} {what}" for what, n in sorted(shelves.counts.items())))
        return shelves


@dataclass
class Shelves:
    """Problems by split, as tasks, and ``counts`` of what was read and left out."""

    tasks: dict[Split, list[Task]] = field(default_factory=lambda: {"train": [], "validation": [], "test": []})
    counts: Counter[str] = field(default_factory=Counter)
    _known: set[str] = field(default_factory=set)

    def put(self, problem: Problem, split: Split) -> None:
        digest = digest_of(problem.statement)
        if digest in self._known:
            self.counts["repeated statements left out"] += 1
            return
        self._known.add(digest)
        self.counts[f"{split} problems"] += 1
        self.tasks[split].append(Task(f"code-{digest}", split, {"problem": problem}))

    def draw(self, split: Split, count: int, seed: int) -> list[Task]:
        """``count`` different tasks.  Raises ``ValueError`` where there are fewer."""
        known: Sequence[Task] = self.tasks[split]
        if count > len(known):
            raise ValueError(f"code: the data has {len(known)} {split} tasks, not {count}")
        return Random(f"code/{split}/{seed}").sample(known, count)


def _shortened(problem: Problem, most: int) -> Problem:
    return replace(problem, hidden=problem.hidden[:most]) if most else problem

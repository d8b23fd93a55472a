"""The problems of data sets, by split."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...experience import Split
from ..datasets import DataSource, DataSplits, Table, load_splits
from ..splits import split_of
from .problem import Problem
from .sources import SCHEMAS

_log = logging.getLogger(__name__)


class ProblemSource(DataSource[Problem]):
    """A table of problems; ``kind``, one of :data:`.sources.SCHEMAS`, decides the columns.

    ``path``, ``split``, ``config`` and ``revision`` are those of :class:`..datasets.table.Table`.
    """

    def __init__(
        self, kind: str, path: str, split: str = "train", config: str | None = None, revision: str | None = None
    ) -> None:
        if kind not in SCHEMAS:
            raise ValueError(f"env.data: kind={kind} of {path} is unknown; known are {', '.join(SCHEMAS)}")
        super().__init__(Table(path, split, config, revision), SCHEMAS[kind].columns)
        self.kind = kind

    def item(self, row: Mapping[str, Any]) -> Problem:
        return SCHEMAS[self.kind].problem(f"{self.kind}/{row[next(iter(self.columns))]}", row)


@dataclass(frozen=True)
class ProblemSet:
    """Programming problems: ``train`` gives the train and validation splits, ``test`` the test split.

    Without ``test`` the one table is split in three; without ``train`` there is the test split alone.  Within a table a
    problem's split is decided by its statement.  A statement occurs once, in the test split where it is in both tables.

    ``max_hidden_train`` hidden tests of a training problem are used, the first (the paper: 4; 0: all); a script is the
    last.  Validation and test problems always have all of theirs: fewer would let wrong programs pass.
    """

    train: ProblemSource | None
    test: ProblemSource | None = None
    max_hidden_train: int = 0

    def __post_init__(self) -> None:
        if self.train is None and self.test is None:
            raise ValueError("env.data needs train or test")
        if self.max_hidden_train < 0:
            raise ValueError(f"env.data.max_hidden_train must be at least 0, got {self.max_hidden_train}")

    def load(self, name: str) -> DataSplits[Problem]:
        """All problems, as tasks of the world ``name``.

        Raises :class:`..datasets.table.DataError` for a cell that is not as the data set's card says.
        """
        sources: dict[Split, list[ProblemSource]] = {
            "train": [] if self.train is None else [self.train],
            "validation": [],
            "test": [] if self.test is None else [self.test],
        }
        splits = load_splits(name, sources, split_of, config_key="env.data")
        for split, problems in splits.items.items():
            left_out = [problem.unusable_tests for problem in problems.values() if problem.unusable_tests]
            if left_out:
                count = splits.counts[f"{split}_unusable_tests"] = sum(left_out)
                words = "%s: %d tests of %d of the %d %s problems are left out: no calls and values in JSON"
                _log.warning(words, name, count, len(left_out), len(problems), split)
        if self.max_hidden_train:
            for key, problem in splits.items["train"].items():
                script = problem.script if len(problem.hidden) < self.max_hidden_train else None
                splits.items["train"][key] = replace(
                    problem, hidden=problem.hidden[: self.max_hidden_train], script=script
                )
        return splits

"""The one reader of a run directory, for reports, tables, sweeps, evaluations and notebooks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import no_folder
from .bounded import UnreadableError, read_text
from .budget import Budget
from .episodes import EpisodeFile, episode_files
from .files import (
    CHECKPOINTS,
    CONFIG,
    EPISODES,
    FORMAT,
    FORMAT_KEY,
    LOCK,
    METRICS,
    SEALED,
    SUMMARY,
    SWAPPED,
    SWEEP,
    VERSIONS,
    RunDirectoryError,
    briefly,
    evaluation_folders,
    read_lines,
    read_object,
)
from .fingerprint import code_hash, evaluation_keys, training_hash
from .lock import is_held
from .older import with_current_config
from .tables import data_frame
from .trees import TreeFile, TreeRecord, read_trees, tree_files

if TYPE_CHECKING:
    from pandas import DataFrame

log = logging.getLogger(__name__)

WHOLE = ("policies", "loop", "name", "seed")
"""Keys of every ``config.yaml``, the last of them near its end."""
FINAL = ("eval_before/success", "eval/success", "eval_best/success")
"""The keys of ``summary.json`` that a run has at its end only, all of them."""


class RunReader:
    """One run directory as plain data.  A file is read when it is first asked for, and once::

        run = Run("runs/sokoban_specialized/2026-11-21_15-46-09-0")
        run.config["algorithm"]["sampler"]["k"]            # 4
        run.status, run.summary["eval/success"]            # "finished", 0.935
        run.metrics["rollout/turns"]                       # a column of a pandas DataFrame, by iteration
        run.rows[-1]["rollout/turns"]                      # a row of metrics.jsonl
        run.values("eval/success")                         # [(10, 0.41), (20, 0.63), ...]
        run.episodes("test", 0)[0]["messages"]             # of the evaluation before training
        run.tree_records(0)[0]["nodes"]                    # of a training tree
        run.checkpoint("best") / "tool"                    # a folder for from_pretrained

    A file that is not there is empty, a line that is cut off is left out, and ``problems`` names both.  A damaged
    ``config.yaml``, ``versions.json`` or ``summary.json`` raises :class:`~troupe.runs.files.RunDirectoryError`; where
    the run is ``tolerant`` it is empty, too, and a problem.

    Raises :class:`~troupe.runs.files.RunDirectoryError` where ``path`` holds no ``config.yaml``.
    """

    def __init__(self, path: str | Path, *, tolerant: bool = False) -> None:
        path = Path(path)
        try:
            found = (path / CONFIG).is_file()
        except OSError as error:  # a name that is too long, a folder that may not be read
            raise RunDirectoryError(f"{path} is not a run directory: {error.strerror}") from error
        if not found:
            reason = f"{CONFIG} is missing" if path.is_dir() else no_folder(path)
            if runs := sorted(path.glob(f"*/{CONFIG}")):  # named after the time of their start
                several = f"{len(runs)} run directories, the last of which is" if runs[1:] else "the run directory"
                reason += f"; it holds {several} {runs[-1].parent}"
            if sweep := next((each for each in (path / SWEEP, *path.glob(f"*/{SWEEP}")) if each.is_file()), None):
                place = "it" if sweep.parent == path else sweep.parent
                reason += f"; {place} is a sweep, which `troupe report` and troupe.Sweep read"
            raise RunDirectoryError(f"{path} is not a run directory: {reason}")
        self.path, self.tolerant = path, tolerant

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    # ---- configuration and code -------------------------------------------------------------------------------------

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, as it was written, with ``algorithm.reward`` in runs that are older than it."""
        return with_current_config(self._object(CONFIG))

    @property
    def config_text(self) -> str:
        """The text of the configuration, "" where it is not read."""
        try:
            return read_text(self.path, CONFIG)
        except UnreadableError:
            return ""

    @cached_property
    def versions(self) -> dict[str, Any]:
        """Packages, Python, machine, commit and the code's hash, at the run's start."""
        return self._object(VERSIONS)

    @cached_property
    def code(self) -> str:
        """The hash of the code that trained the run, "" where the run does not say.  Of a run that was continued with
        other code (``versions_NNNNN.json``) the hashes joined by "+", which no code of today has."""
        later = [self._object(file.name) for file in sorted(self.path.glob("versions_*.json"))]
        return "+".join(dict.fromkeys(str(versions.get("code", "")) for versions in [self.versions, *later]))

    @cached_property
    def training_hash(self) -> str:
        """Equal for runs that train alike, see :func:`~troupe.runs.fingerprint.training_hash`."""
        return training_hash(self.config)

    def stale(self, evaluation: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """The reasons why its figures may not be those of a run of today: "code", and "evaluation" where its
        :func:`~troupe.runs.fingerprint.evaluation_keys` are not ``evaluation``."""
        differs = evaluation is not None and evaluation_keys(self.config) != evaluation
        reasons = {"code": self.code != code_hash(self.config), "evaluation": differs}
        return tuple(reason for reason, holds in reasons.items() if holds)

    def check_format(self) -> None:
        """Raise :class:`~troupe.runs.files.RunDirectoryError` where another version of Troupe wrote the run: its
        configuration names keys and classes that this version does not have."""
        if not (self.path / VERSIONS).is_file():
            raise RunDirectoryError(f"{self.path} has no {VERSIONS}, which names the version of its layout")
        layout = self.versions.get(FORMAT_KEY, 1)
        if layout != FORMAT:
            newer = isinstance(layout, int) and layout > FORMAT
            raise RunDirectoryError(
                f"{self.path} was written by {'a newer' if newer else 'an older'} version of Troupe (layout {layout}, "
                f"not {FORMAT}); report and compare read it, resume and evaluation do not"
            )

    # ---- results ----------------------------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> dict[str, Any]:
        """How the run ended, success on the test tasks, totals; nothing before its end."""
        return self._object(SUMMARY)

    @property
    def status(self) -> str | None:
        """``finished``, ``interrupted`` or ``failed``; None while the run goes on, and where it was killed
        (:attr:`state` says which)."""
        return self.summary.get("status")

    @property
    def state(self) -> str:
        """The status; without one ``running`` or ``killed``, by whether a process trains here; ``damaged`` where the
        summary cannot be read."""
        if not self.summary and read_object(self.path, SUMMARY)[1]:
            return "damaged"
        if self.status is None:
            return "running" if is_held(self.path / LOCK) else "killed"
        return str(self.status)

    @property
    def finished(self) -> bool:
        """Whether the run went as far as its configuration, or a callback of it, says, and was evaluated."""
        loop, summary = self.config["loop"], self.summary
        budget = Budget(loop["iterations"], 0, loop["completions"])  # how many tasks per iteration does not matter
        exhausted = budget.exhausted(summary.get("iterations", -1), summary.get("train/completions", 0))
        return (
            (exhausted or "stopped_by" in summary)
            and self.status == "finished"
            and all(key in summary for key in FINAL)
        )

    @cached_property
    def _rows(self) -> tuple[list[dict[str, Any]], list[str]]:
        lines, problems = read_lines(self.path, METRICS)
        rows = []
        for number, row in lines:
            if isinstance(row.get("iteration"), int):
                rows.append(row)
            else:
                problems.append(f"{METRICS}, line {number}, has no iteration and is left out.")
        return rows, briefly(problems)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per iteration, with flat keys and ``iteration``, from 1."""
        return self._rows[0]

    @property
    def metrics(self) -> DataFrame:
        """:attr:`rows` as a table: one row per iteration, one column per metric; NaN where a row lacks the metric.

        Raises :class:`~troupe.errors.AbsentError` where pandas is not installed.
        """
        return data_frame("Run.metrics", self.rows, None if self.rows else ["iteration"]).set_index("iteration")

    def values(self, key: str) -> list[tuple[int, Any]]:
        """(Iteration, value) of the rows that have the metric ``key``."""
        return [(row["iteration"], row[key]) for row in self.rows if key in row]

    @cached_property
    def episode_files(self) -> dict[str, EpisodeFile]:
        """The episodes of the run's own evaluations, by the name of their file: ``test_00000``, ``validation_00010``,
        ..., ``test_best``."""
        return episode_files(self.path)

    def episodes(
        self, split: Literal["test", "validation"] = "test", iteration: int | Literal["last", "best"] = "last"
    ) -> list[dict[str, Any]]:
        """The episodes of the evaluation on ``split`` after so many iterations, as :attr:`.EpisodeFile.episodes` has
        them: ``"last"`` is the latest one, ``"best"`` that of the checkpoint that was best on validation.

        Raises :class:`~troupe.runs.files.RunDirectoryError` where there is none, naming those that there are.
        """
        numbered = [file for file in self.episode_files.values() if file.split == split and file.iteration is not None]
        if iteration == "best" and f"{split}_best" not in self.episode_files and self.finished:
            iteration = "last"  # the last weights are the best ones, and were played once
        name = f"{split}_{iteration:05d}" if isinstance(iteration, int) else f"{split}_{iteration}"
        if iteration == "last" and numbered:
            name = numbered[-1].name
        if name not in self.episode_files:
            known = ", ".join(self.episode_files) or "none"
            raise RunDirectoryError(f"{self.path / EPISODES} has no episodes '{name}'. Known: {known}")
        return self.episode_files[name].episodes

    def tree_records(self, iteration: int | None = None) -> list[TreeRecord]:
        """The training trees that were kept after so many iterations, or all: plain data, see docs/reports.md.

        Raises :class:`~troupe.runs.files.RunDirectoryError` where there are none of that iteration, naming those that
        there are; and where a line is cut or damaged, unless the run is ``tolerant``.
        """
        return read_trees(self.path, iteration, tolerant=self.tolerant)

    @cached_property
    def tree_files(self) -> dict[int, TreeFile]:
        """The files of the training trees, by the number of iterations before them."""
        return tree_files(self.path)

    # ---- weights and later evaluations ------------------------------------------------------------------------------

    def checkpoint(self, name: str) -> Path:
        """The folder of ``last``, ``best`` or ``iteration_NNNNN``, one folder per policy in it; it may not exist.

        Untrained policies are in none: ``Run.policy(NAME, "base")`` has them.
        """
        return self.path / CHECKPOINTS / name

    @property
    def default_checkpoint(self) -> Literal["best", "last"]:
        """``best``; ``last``, with a warning, of a run that has no best one, since it ended before a validation."""
        names = self.checkpoints
        if "best" in names or "last" not in names:
            return "best"
        log.warning("%s has no checkpoint 'best', which a validation makes: its last one is used", self.path)
        return "last"

    @property
    def checkpoints(self) -> list[str]:
        """The names of the checkpoints that exist."""
        folder = self.path / CHECKPOINTS
        return sorted(entry.name for entry in folder.glob("*") if entry.is_dir() and entry.suffix != ".tmp")

    @property
    def evaluations(self) -> list[Path]:
        """The folders of the evaluations that were made later, see :mod:`troupe.evaluation.records`."""
        return evaluation_folders(self.path)

    @cached_property
    def of_sweeps(self) -> dict[str, dict[str, Any]]:
        """The evaluations that a sweep made of the run, each empty where it did not: ``swapped``, of its two policies
        exchanged, and ``sealed``, on tasks that were kept for the end."""
        return {"swapped": self._object(SWAPPED), "sealed": self._object(SEALED)}

    @cached_property
    def problems(self) -> list[str]:
        """Sentences about what is missing, damaged or left out; :class:`.episodes.EpisodeFile` has those of its own."""
        if not self.tolerant:
            return RunReader(self.path, tolerant=True).problems
        problems, young = list[str](), self.state == "running"  # it has not written all yet
        for name in (CONFIG, VERSIONS, SUMMARY):
            if not (self.path / name).exists():
                problems += [] if young and name == SUMMARY else [f"{name} is missing."]
            elif damage := read_object(self.path, name)[1]:
                problems.append(damage)
        if self.config and self.lacking:
            problems.append(f"{CONFIG} has no {', '.join(self.lacking)}: it is cut or damaged.")
        if not young and not (self.path / METRICS).exists():
            problems.append(f"{METRICS} is missing.")
        problems += self._rows[1]
        if not young and not self.episode_files:
            problems.append(f"{EPISODES}/ holds no episodes.")
        return problems

    @property
    def lacking(self) -> tuple[str, ...]:
        """The keys without which the configuration is not whole."""
        return tuple(key for key in WHOLE if key not in self.config)

    def episode_problems(self) -> list[str]:
        """Sentences about the files of episodes and trees; what is read for this alone is not kept."""
        tests = [file for file in self.episode_files.values() if file.split == "test"]
        others = [EpisodeFile(file.path) for file in self.episode_files.values() if file.split != "test"]
        trees = [TreeFile(file.path) for file in self.tree_files.values()]
        files: list[EpisodeFile | TreeFile] = [*tests, *others, *trees]
        return [problem for file in files for problem in file.problems]

    def _object(self, name: str) -> dict[str, Any]:
        content, damage = read_object(self.path, name)
        if damage and not self.tolerant:
            raise RunDirectoryError(f"{self.path}: {damage}")
        return content

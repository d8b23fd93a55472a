"""The command line of ``troupe reproduce``, read before anything heavy is imported."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError, nearest
from ...setup.command_line import check_overrides
from ..options import Options, Overrides, SweepFile, check_folder, files_of, parse_overrides
from .table import Part, ReproductionTable, Scale, check_scale, table_names

KEYS = ("table", "scale", "seeds", "jobs", "runs", "rerun_stale", "dry_run", "finished")
TAKEN = ("seed", "run_dir", "resume", "experiment", "launcher", "sweep", "sealed")
"""Keys of runs and sweeps that a table decides."""
GIB = {"laptop": 1.5, "smollm2": 5.0, "paper": 64.0}
"""The memory of one run, by scale: as measured on a CPU, with room; docs/scales.md."""


@dataclass(frozen=True)
class ReproduceOptions:
    """The keys of the command; all others configure the runs.

    ``seeds`` are the seeds in place of the table's.  ``jobs``: runs at a time; None: as many as this machine has cores
    and memory for.  The runs in the summaries ``finished`` count as finished.
    """

    tables: tuple[ReproductionTable, ...]
    scale: Scale = "laptop"
    seeds: tuple[int, ...] | None = None
    jobs: int | None = None
    runs: str = "runs"
    rerun_stale: bool = False
    dry_run: bool = False
    finished: tuple[str, ...] = ()
    config_dir: str | None = None

    @classmethod
    def split(cls, arguments: Sequence[str]) -> tuple[ReproduceOptions, list[str]]:
        """The options, and the words for the runs.  Raises :class:`ConfigError`."""
        folder, words = _config_dir(arguments)
        given: dict[str, str] = {}
        others = []
        for word in words:
            key, equals, value = word.partition("=")
            if word.startswith("-") or not equals:
                raise ConfigError(f"{word} is no option of reproduce; it has --config-dir FOLDER, and keys: KEY=VALUE")
            if key in TAKEN:
                raise ConfigError(f"{key} cannot be given: the table decides it{' (seeds=)' if key == 'seed' else ''}")
            if key in KEYS:
                given[key] = value
            else:
                others.append(word)
        if not given.get("table"):
            raise ConfigError(f"Which table?  table=NAME with NAME one of: {', '.join([*table_names(), 'all'])}")
        scale = check_scale(given.get("scale", "laptop"))
        options = cls(
            tables=_tables(given["table"], scale),
            scale=scale,
            seeds=_seeds(given["seeds"]) if "seeds" in given else None,
            jobs=_whole("jobs", given["jobs"]) if "jobs" in given else None,
            runs=given.get("runs", "runs"),
            rerun_stale=_flag("rerun_stale", given),
            dry_run=_flag("dry_run", given),
            finished=files_of(given.get("finished", "")),
            config_dir=folder,
        )
        check_folder("runs", options.runs)
        return options, others

    def check(self, words: Sequence[str]) -> None:
        """Check ``words``: that no table varies their keys, and with the first run of the first table, which takes no
        second.  Raises :class:`ConfigError`."""
        given = parse_overrides(words, "").keys()
        for table in self.tables:
            for part in table.parts_at(self.scale).values():
                for name, overrides in table.settings_at(self.scale, part).items():
                    for key in parse_overrides(overrides, f"settings.{name}").keys() & given:
                        raise ConfigError(f"table={table.name} varies {key}; it cannot be given")
        table = self.tables[0]
        part = next(iter(table.parts_at(self.scale).values()))
        file, merged = self.file(table, part), Overrides()
        for texts in (file.overrides, next(iter(file.settings.values())), words):
            merged |= parse_overrides(texts, "")
        with self.of_sweep(table).configurations():
            check_overrides("train", [each[0] for each in merged.values()], own=KEYS, taken=TAKEN)

    def file(self, table: ReproductionTable, part: Part) -> SweepFile:
        """The sweep of ``part``."""
        settings, overrides = table.settings_at(self.scale, part), table.overrides_at(self.scale, part)
        return SweepFile(table.question, settings, self.seeds_of(table), overrides)

    def of_sweep(self, table: ReproductionTable) -> Options:
        """The options of its sweeps.  Among summaries that of the table itself comes first: it alone has the teams that
        were made of its runs."""
        files = tuple(sorted(self.finished, key=lambda file: _head(file) != (table.name, self.scale)))
        return Options(sweep=table.name, runs=self.runs, finished=files, config_dir=self.config_dir)

    def seeds_of(self, table: ReproductionTable) -> tuple[int, ...]:
        return self.seeds if self.seeds is not None else tuple(range(table.scales[self.scale].seeds))

    def jobs_of(self, table: ReproductionTable) -> int:
        """Runs at a time."""
        if table.alone:
            return 1
        return self.jobs if self.jobs is not None else machine_jobs(self.scale)


def _head(file: str) -> tuple[Any, Any] | None:
    """The table and the scale whose summary ``file`` is; None where it is none of a table."""
    try:
        with open(file, encoding="utf-8") as lines:
            head = json.loads(next(lines))
        return head.get("table"), head.get("scale")
    except (OSError, ValueError, StopIteration, AttributeError):
        return None


def machine_jobs(scale: Scale) -> int:
    """As many runs of one thread as there are cores for this process, and memory that is free."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = _free_gib()
    return max(1, cores if free is None else min(cores, int(free / GIB[scale])))


def _free_gib() -> float | None:
    file = Path("/proc/meminfo")
    if not file.is_file():
        return None
    lines = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) / 2**20 if "MemAvailable" in lines else None


def _config_dir(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    words, folder = list(arguments), None
    for flag in ("--config-dir", "-cd"):
        if flag in words:
            place = words.index(flag)
            if place + 1 == len(words):
                raise ConfigError(f"{flag} names no folder")
            folder, words = words[place + 1], [*words[:place], *words[place + 2 :]]
    return folder, words


def _tables(name: str, scale: Scale) -> tuple[ReproductionTable, ...]:
    """That of ``name``; with ``all`` those that have ``scale``."""
    if name != "all":
        table = ReproductionTable.read(name)
        table.parts_at(scale)
        return (table,)
    tables = [ReproductionTable.read(each) for each in table_names()]
    return tuple(table for table in tables if any(scale in part.scales for part in table.parts.values()))


def _seeds(text: str) -> tuple[int, ...]:
    """``3`` is the seeds 0 to 2; ``0,4`` and ``[0,4]`` are these."""
    words = text.strip("[]").split(",")
    try:
        numbers = tuple(int(word) for word in words)
    except ValueError:
        raise ConfigError(f"seeds={text} must be a number of seeds, or a list of them: seeds=0,1,2") from None
    if "," not in text and not text.startswith("["):
        if numbers[0] < 1:
            raise ConfigError(f"seeds={text}: at least one seed is needed")
        return tuple(range(numbers[0]))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ConfigError(f"seeds={text} must be different whole numbers of at least 0")
    return numbers


def _whole(key: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{key} must be a whole number of at least 1, got {text!r}")
    return int(text)


def _flag(key: str, given: dict[str, str]) -> bool:
    value = given.get(key, "false")
    if value not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, got {value!r}{nearest(value, ['true', 'false'])}")
    return value == "true"

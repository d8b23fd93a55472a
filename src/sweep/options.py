"""The command lines of ``troupe sweep`` and ``troupe reproduce``, read before anything heavy is imported."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ..errors import ConfigError
from ..setup.command_line import check_overrides
from ..setup.composition import KEY, all_choices, configurations
from .publication_file import Scale, TableFile, table_names
from .sweep_file import Overrides, SweepFile, parse_overrides, refusal

COMMON = ("runs", "rerun_stale", "dry_run", "finished")
KEYS = {"sweep": ("sweep", "launcher", "sealed", *COMMON), "reproduce": ("table", "scale", "seeds", "jobs", *COMMON)}
"""The keys of each command itself; all others configure the runs."""
Settings = Mapping[str, Sequence[str]]
"""The overrides of each setting, by its name."""
GIB = {"laptop": 1.5, "smollm2": 5.0, "paper": 64.0}
"""The memory of one run, by scale: as measured on a CPU, with room; docs/scales.md."""


@dataclass(frozen=True)
class Options:
    """The keys of a command, ``--config-dir``, and ``search_path``, the word that gives ``hydra.searchpath``.

    ``finished`` are summaries whose runs count as finished.  Of tables: ``seeds`` are the seeds in place of a table's;
    ``jobs``: runs at a time; None: as many as this machine has cores and memory for.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    sweep: str = ""
    table: str = ""
    scale: Scale = "laptop"
    seeds: tuple[int, ...] | None = None
    jobs: Annotated[int, Field(ge=1)] | None = None
    launcher: Literal["basic", "joblib", "submitit", "submitit_local"] = "basic"
    runs: str = "runs"
    rerun_stale: bool = False
    dry_run: bool = False
    sealed: bool = False
    finished: tuple[str, ...] = ()
    config_dir: str | None = None
    search_path: tuple[str, ...] = ()

    @classmethod
    def split(cls, command: str, arguments: Sequence[str]) -> tuple[Options, list[str]]:
        """The options of ``command``, and the other arguments, which are for the runs.  Raises
        :class:`ConfigError`."""
        parser = ArgumentParser(f"troupe {command}", add_help=False, allow_abbrev=False)
        parser.add_argument("--config-dir", "-cd")
        flags, words = parser.parse_known_args(arguments)
        if wrong := [word for word in words if word.startswith("-")]:
            raise ConfigError(f"{wrong[0]} is no option of {command}; it has --config-dir FOLDER, and keys: KEY=VALUE")
        search_path = [word for word in words if word.startswith(f"{KEY}=")]
        values: dict[str, Any] = {"config_dir": flags.config_dir, "search_path": search_path}
        others = []
        for word in words:
            key, _, value = word.partition("=")
            if key in KEYS[command]:
                values[key] = files_of(value) if key == "finished" else seeds_of(value) if key == "seeds" else value
            else:
                others.append(word)
        try:
            options = TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            raise refusal(cls, error) from error
        if options.launcher.startswith("submitit") and not find_spec("submitit"):
            raise ConfigError(f"launcher={options.launcher} needs submitit: pip install -c constraints.txt '.[slurm]'")
        path = Path(options.runs)
        there = next((place for place in (path, *path.parents) if place.exists()), None)
        if there is not None and not there.is_dir():
            raise ConfigError(f"runs={options.runs}: {there} is not a folder")
        return options, others

    @property
    def command(self) -> str:
        """The word that names the sweep or table."""
        return f"table={self.table}" if self.table else f"sweep={self.sweep}"

    @property
    def own_keys(self) -> tuple[str, ...]:
        """The keys of the command."""
        return KEYS["reproduce" if self.table else "sweep"]

    def configurations(self) -> AbstractContextManager[None]:
        """A context with Troupe's configurations and those of the user."""
        return configurations(self.config_dir)

    def file(self) -> SweepFile:
        """The sweep's yaml.  Raises :class:`ConfigError`."""
        with self.configurations():
            if not self.sweep:
                names = ", ".join(all_choices("sweep", self.search_path))
                raise ConfigError(f"Which sweep?  sweep=NAME with NAME one of: {names}")
            return SweepFile.read(self.sweep, self.search_path)

    def check(self, settings: Settings, common: Sequence[str], arguments: Sequence[str]) -> None:
        """Check the words of the first of ``settings``, which takes no second.  Raises :class:`ConfigError`."""
        setting, own = next(iter(settings.items()))
        words: Overrides = {}
        for overrides, origin in ((common, "overrides"), (own, f"settings.{setting}"), (arguments, "")):
            words |= parse_overrides(overrides, origin)
        with self.configurations():
            texts = [*self.search_path, *(own[0] for own in words.values())]
            check_overrides("train", texts, own=self.own_keys, taken=("run_dir", "resume"))

    def tables(self) -> list[TableFile]:
        """The table, or with ``all`` those that have the scale.  Raises :class:`ConfigError`."""
        if not self.table:
            raise ConfigError(f"Which table?  table=NAME with NAME one of: {', '.join([*table_names(), 'all'])}")
        tables = [TableFile.read(name) for name in (table_names() if self.table == "all" else [self.table])]
        if self.table == "all":
            return [table for table in tables if any(self.scale in part.scales for part in table.parts.values())]
        tables[0].parts_at(self.scale)  # refuses a scale that it does not have
        return tables

    def seeds_of(self, table: TableFile) -> tuple[int, ...]:
        return self.seeds if self.seeds is not None else tuple(range(table.scales[self.scale].seeds))

    def jobs_of(self, table: TableFile) -> int:
        """Runs at a time."""
        if table.alone:
            return 1
        return self.jobs if self.jobs is not None else machine_jobs(self.scale)


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


def files_of(text: str) -> tuple[str, ...]:
    """``a.jsonl,folder`` or ``[a.jsonl,folder]``: these files, of a folder its ``*.jsonl``.  Raises
    :class:`ConfigError` naming what there is not, and a folder without any.
    """
    files: list[str] = []
    for name in (name.strip() for name in text.strip("[]").split(",") if name.strip()):
        path = Path(name)
        own = sorted(map(str, path.glob("*.jsonl"))) if path.is_dir() else [name] if path.is_file() else []
        if not own:
            reason = "the folder has no *.jsonl, the summaries of sweeps and tables"
            raise ConfigError(f"finished={name}: {reason if path.is_dir() else 'there is no such file'}")
        files += own
    return tuple(dict.fromkeys(files))


def seeds_of(text: str) -> tuple[int, ...]:
    """``3`` is the seeds 0 to 2; ``0,4`` and ``[0,4]`` are these.  Raises :class:`ConfigError`."""
    try:
        numbers = tuple(int(word) for word in text.strip("[]").split(","))
    except ValueError:
        raise ConfigError(f"seeds={text} must be a number of seeds, or a list of them: seeds=0,1,2") from None
    seeds = numbers if "," in text or text.startswith("[") else tuple(range(numbers[0]))
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ConfigError(f"seeds={text} must be at least one, or different whole numbers of at least 0")
    return seeds

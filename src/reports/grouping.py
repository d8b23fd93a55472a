"""Runs as the seeds of settings, and the keys of the configuration in which the settings differ."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..runs.files import CONFIG
from ..runs.fingerprint import flat, matches, training_keys
from ..runs.run import RunReader

PLACES = ("run_dir", "resume", "dry_run", "name", "logger", "verbose", "live", "trust", "detect_anomaly", "hydra")
"""Keys that say where a run is and what is shown of it."""
ABSENT = "–"
SHOWN_KEYS = 2
"""Keys in the name of a setting at most."""


@dataclass(frozen=True)
class Setting:
    """Runs that differ in their seed alone, one per seed.  Settings of other groups, worlds of one table say, are not
    compared."""

    name: str
    runs: tuple[RunReader, ...]
    group: str = ""

    @property
    def by_seed(self) -> dict[str, RunReader]:
        """Runs by seed; one whose configuration names no seed is not there."""
        return {str(run.config["seed"]): run for run in self.runs if "seed" in run.config}


def settings_of(runs: Iterable[RunReader], *, titled: bool = True) -> tuple[list[Setting], list[str]]:
    """The settings of ``runs``, which are tolerant: those of one training configuration but for its seed; of several
    with one seed, too, each is in a setting of its own.  And sentences about runs that are left out, since their
    configuration is cut.  ``titled``: a title has the name that all have in common, and the settings' need not.
    """
    groups: dict[str, list[RunReader]] = {}
    cut = []
    for run in runs:
        if run.config and run.lacking:
            cut.append(f"{run.path} is left out: {CONFIG} has no {', '.join(run.lacking)}, it is cut or damaged.")
            continue
        groups.setdefault(json.dumps(_keys(run), sort_keys=True, default=str), []).append(run)
    names = _names([group[0] for group in groups.values()], titled=titled)
    shown = [each for name, group in zip(names, groups.values(), strict=True) for each in _repeated(name, group)]
    if titled and len(names) == 1:
        shown = [replace(each, name=each.name.removeprefix(f"{names[0]}, ")) for each in shown]
    return shown, cut


def _repeated(name: str, runs: Iterable[RunReader]) -> list[Setting]:
    """The runs of one configuration: a setting with a run of each seed, finished ones before others and older ones
    before newer ones; another one, with its folder's name or a number, with the second of each seed; and so on."""
    by_seed: dict[str, list[RunReader]] = {}
    for run in sorted(runs, key=lambda run: (run.status != "finished", run.path.name)):
        by_seed.setdefault(str(run.config.get("seed", run.path)), []).append(run)
    same = [by_seed[seed] for seed in sorted(by_seed, key=lambda seed: seed.zfill(9))]
    times = [tuple(own[n] for own in same if n < len(own)) for n in range(max(map(len, same)))]
    folders = _ends([run.path for run, *_ in times])
    labels = [f"runs {n}" if own[1:] else folders[n - 1] for n, own in enumerate(times, start=1)]
    return [Setting(f"{name}, {label}" if times[1:] else name, own) for label, own in zip(labels, times, strict=True)]


def _ends(paths: Sequence[Path]) -> list[str]:
    """The names of different ``paths``, with as many folders above as tell them apart."""
    deepest = max(len(path.parts) for path in paths)
    ends = ([str(Path(*path.parts[-n:])) for path in paths] for n in range(1, deepest + 1))
    return next(each for each in ends if len({*each}) == len(paths))


def _keys(run: RunReader) -> dict[str, Any]:
    """What the runs of a setting have in common; of a run without a configuration its place."""
    keys = {key: value for key, value in training_keys(run.config).items() if not _is_seed(key)}
    return keys or {"run": str(run.path)}


def _is_seed(key: str) -> bool:
    return key.rpartition(".")[2] == "seed"


def _names(runs: Sequence[RunReader], *, titled: bool) -> list[str]:
    """A name for the setting of each of ``runs``: the runs' own where they differ, else with the first keys in which
    the settings differ."""
    own = [str(run.config.get("name", run.path.name)) for run in runs]
    keys = [_keys(run) for run in runs]
    names = []
    for name, mine in zip(own, keys, strict=True):
        others = [other for its, other in zip(own, keys, strict=True) if its == name]
        different = [key for key in mine if any(other.get(key, ABSENT) != mine[key] for other in others)]
        different.sort(key=lambda key: not key.endswith("._target_"))  # the class says more than its arguments
        parts = dict.fromkeys(f"{last_name(key)}={short(mine[key])}" for key in different)
        label = " ".join(list(parts)[:SHOWN_KEYS])
        unique = len(others) == 1 or not label
        names.append(name if unique else label if titled and len(set(own)) == 1 else f"{name} {label}")
    count = Counter(names)
    seen: Counter[str] = Counter()
    for place, name in enumerate(names):
        seen[name] += 1
        names[place] = f"{name} ({seen[name]})" if count[name] > 1 else name
    return names


def last_name(key: str) -> str:
    """The name of ``key``; of a class that of its part."""
    parts = [part for part in key.split(".") if part != "_target_"]
    return parts[-1]


def short(value: Any) -> str:
    """A value for people: of a class its name, of an algorithm's the name that configurations have for it."""
    if isinstance(value, str):
        if value.startswith("troupe.algorithms."):
            return value.split(".")[-2]
        return value.rpartition(".")[2] if value.count(".") > 1 and " " not in value and "/" not in value else value
    return json.dumps(value, default=str)


def config_differences(settings: Sequence[Setting]) -> list[tuple[str, list[str]]]:
    """(Key, value in each setting) of every key in which runs differ, but for seeds and places; several values in one
    setting are joined by " | ".
    """
    runs = [run for setting in settings for run in setting.runs if run.config]
    known = [[_leaves(run) for run in setting.runs if run.config] for setting in settings]
    keys = dict.fromkeys(key for leaves in known for one in leaves for key in one)
    for key in [key for key in keys if key.endswith("_seed")]:
        if all(_at(run, key) == run.config.get("seed") for run in runs):  # loop.task_seed='${seed}'
            del keys[key]
    rows = []
    for key in keys:
        values = [list(dict.fromkeys(_text(one, key) for one in leaves)) for leaves in known]
        if len({tuple(each) for each in values if each}) > 1 or max(map(len, values)) > 1:
            rows.append((key, [" | ".join(each) for each in _shortened(values)]))
    return rows


def differences(runs: Sequence[RunReader]) -> dict[RunReader, dict[str, str]]:
    """What each of ``runs`` has otherwise than another one of its name: the seed, then other keys."""
    found: dict[RunReader, dict[str, str]] = {run: {} for run in runs}
    named: dict[str, list[RunReader]] = {}
    for run in runs:
        named.setdefault(str(run.config.get("name")), []).append(run)
    for same in named.values():
        seeds = [str(run.config.get("seed", ABSENT)) for run in same]
        for key, values in [("seed", seeds), *config_differences([Setting("", (run,)) for run in same])]:
            for run, value in zip(same, values, strict=True):
                found[run] |= {key: value} if len(set(values)) > 1 else {}
    return found


def _leaves(run: RunReader) -> dict[str, Any]:
    """Without places and seeds."""
    return {key: value for key, value in flat(run.config) if not matches(key, PLACES) and not _is_seed(key)}


def _at(run: RunReader, key: str) -> Any:
    return dict(flat(run.config)).get(key)


def _text(leaves: Mapping[str, Any], key: str) -> str:
    if key not in leaves:
        return ABSENT
    value = leaves[key]
    return value if isinstance(value, str) and value else json.dumps(value, default=str)


def _shortened(values: Sequence[Sequence[str]]) -> list[list[str]]:
    """The names of classes without their modules, where they still differ."""
    texts = {text for each in values for text in each}
    if len({short(text) for text in texts}) < len(texts):
        return [list(each) for each in values]
    return [[short(text) for text in each] for each in values]

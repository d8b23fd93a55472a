"""Hashes of the training configuration and of the code: runs with the same two are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from .own_code import own_sources

PACKAGE = Path(__file__).resolve().parents[1]
OBSERVERS = ("api", "cli", "configs", "diagnostics", "reports", "sweep")
"""Rooms of Troupe that start, show and compare runs: no figure of a run depends on them."""

EVALUATION = (
    *("loop.eval_every", "loop.validation_tasks", "loop.test_tasks", "loop.task_seed", "loop.validate_first"),
    "policies.*.sampling.eval",
)
"""Keys that decide how a run is evaluated, not how it learns.  ``*`` stands for one name; keys below are included."""

CHECKSUMS = "checksums.json"
"""The file of a base model with the sha256 of every other file."""

FETCHING = tuple(
    f"policies.*.remote.{key}"
    for key in "key_env concurrency requests_per_minute retries timeout_s prompt_price completion_price".split()
)
"""Keys that decide how a remote policy's messages are fetched, not their content."""

CACHE = ("engine.max_cache_gib", "policies.*.engine.max_cache_gib")
"""Keys that bound how many completions decode together.  Where the bound is reached, which it is in no shipped
experiment, the last bits of log-probabilities differ, and rarely a token."""

EXCLUDED = (
    *(*EVALUATION, *FETCHING, *CACHE, "scale", "loop.checkpoint", "run_dir", "resume", "dry_run"),
    *("trust", "name", "logger", "verbose", "live", "detect_anomaly", "faults", "diagnostics", "execution"),
)
"""Every key that the training hash leaves out: evaluation, fetching, caches, the section ``scale``, whose values count
where they are used, checkpoints, paths, loggers, faults, diagnostics, where the parts of a run are, and the display."""


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(Dotted key, value) of every leaf; lists and empty mappings are leaves."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with these leaves, by dotted key (:func:`flat`)."""
    result: dict[str, Any] = {}
    for key, value in leaves.items():
        *above, last = key.split(".")
        node = result
        for name in above:
            node = node.setdefault(name, {})
        node[last] = value
    return result


def training_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of a resolved configuration that training depends on."""
    return {key: _plain(value) for key, value in flat(config) if not matches(key, EXCLUDED)}


def evaluation_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of a resolved configuration that only evaluation depends on."""
    return {key: _plain(value) for key, value in flat(config) if matches(key, EVALUATION)}


def training_hash(config: Mapping[str, Any]) -> str:
    """16 hexadecimal digits: equal where training is configured equally, seed included, in any order of keys."""
    text = json.dumps(training_keys(config), sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def code_hash(config: Mapping[str, Any]) -> str:
    """16 hexadecimal digits over the code that trains and evaluates as ``config`` says: Troupe's, but for
    :data:`OBSERVERS`, and the user's (:mod:`.own_code`), both as they were at the first call in this process, committed
    or not; and the base models of a warm start, as they are now."""
    config = without_excluded(config)
    code = _hash_of_code(frozenset(own_sources(config).items()), PACKAGE)
    bases = {str(policy.get("base")) for policy in config.get("policies", {}).values() if isinstance(policy, Mapping)}
    made = [(base, file) for base in bases if (file := Path(base, CHECKSUMS)).is_file()]
    return _hash_of(made, code) if made else code


def own_code_hash(config: Mapping[str, Any]) -> str:
    """As :func:`code_hash`, over the user's code alone; "" where there is none."""
    own = own_sources(config)
    return _hash_of(own.items()) if own else ""


def without_excluded(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration on which training or evaluation depends."""

    def part(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for key, value in node.items():
            path = f"{prefix}{key}"
            if isinstance(value, Mapping) and value:
                yield key, dict(part(value, f"{path}."))
            elif not matches(path, EXCLUDED) or matches(path, EVALUATION):
                yield key, value

    return dict(part(config, ""))


@cache
def _hash_of_code(own: frozenset[tuple[str, Path]], package: Path) -> str:
    """Of the modules of ``package`` and the shipped base models, for which their checksums stand, and of ``own``."""
    files = [(file.relative_to(package), file) for name in ("*.py", CHECKSUMS) for file in package.rglob(name)]
    return _hash_of([*((path.as_posix(), file) for path, file in files if path.parts[0] not in OBSERVERS), *own])


def _hash_of(files: Iterable[tuple[str, Path]], start: str = "") -> str:
    """Of the files' names and contents, and of ``start``."""
    digest = blake2b(start.encode(), digest_size=8)
    for name, file in sorted(files):
        digest.update(f"{name}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def matches(key: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of ``patterns`` names ``key`` or a key above it; ``*`` stands for one name."""
    return bool(_regex(patterns).match(key))


@cache
def _regex(patterns: tuple[str, ...]) -> re.Pattern[str]:
    names = (re.escape(pattern).replace(r"\*", "[^.]+") for pattern in patterns)
    return re.compile(rf"(?:{'|'.join(names)})(?:\.|$)")


def _plain(value: Any) -> Any:
    """1.0 and 1 are one number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value

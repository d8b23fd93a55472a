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

EVALUATION = (
    *("loop.eval_every", "loop.validation_tasks", "loop.test_tasks", "loop.task_seed", "loop.validate_first"),
    "policies.*.sampling.eval",
)
"""Keys that decide how a run is evaluated, not how it learns.  ``*`` stands for one name; keys below are included."""

CHECKSUMS = "checksums.json"
"""The file of a shipped base model, or one of a warm start, with the sha256 of every other file."""

FETCHING = tuple(
    f"policies.*.remote.{key}"
    for key in "key_env concurrency requests_per_minute retries timeout_s prompt_price completion_price".split()
)
"""Keys that decide how a remote policy's messages are fetched, not their content."""

EXCLUDED = (
    *(*EVALUATION, *FETCHING, "loop.checkpoint", "run_dir", "resume", "dry_run", "trust", "name", "logger"),
    *("verbose", "detect_anomaly", "faults", "diagnostics", "execution"),
)
"""Every key that the training hash leaves out: evaluation, fetching, checkpoints, paths, loggers, faults, diagnostics,
where the parts of a run are, and the display."""


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(Dotted key, value) of every leaf; lists and empty mappings are leaves."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


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
    """16 hexadecimal digits over the code that ``config`` runs: Troupe's, and the user's (:mod:`.own_code`), as it was
    at the first call in this process; and over the base models of a warm start, as they are now."""
    own = own_sources(config)
    code = _hash_with(frozenset(own.items())) if own else _package_hash()
    bases = {str(policy.get("base")) for policy in config.get("policies", {}).values() if isinstance(policy, Mapping)}
    made = [(base, file) for base in bases if (file := Path(base, CHECKSUMS)).is_file()]
    return _hash_of(made, code) if made else code


def own_code_hash(config: Mapping[str, Any]) -> str:
    """As :func:`code_hash`, over the user's code alone; "" where there is none."""
    own = own_sources(config)
    return _hash_of(own.items()) if own else ""


@cache
def _package_hash() -> str:
    return hash_of_code(Path(__file__).resolve().parents[1])


@cache
def _hash_with(sources: frozenset[tuple[str, Path]]) -> str:
    return _hash_of(sources, _package_hash())


def hash_of_code(package: Path) -> str:
    """16 hexadecimal digits over the source files and the shipped base models of ``package``: names and contents.

    Equal for a checkout and for a wheel of it, in which the folder of configurations lies in the package.
    """
    base = (file for file in (package / "models" / "shipped").glob("*/*") if file.is_file() and file.suffix != ".md")
    names = ((file.relative_to(package).as_posix(), file) for file in [*package.rglob("*.py"), *base])
    return _hash_of((name, file) for name, file in names if not name.startswith("configs/"))


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

"""Hashes of the training configuration and of the code: runs with the same two are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from .imports import imported_files, imported_names
from .own_code import own_sources

PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = PACKAGE / "models" / "shipped"
ROOTS = ("loop", "setup.assembly")
"""The modules of Troupe that train and evaluate any team."""

LEFT_OUT = (
    *("api", "cli", "diagnostics", "reports", "sweep", "setup.checks", "setup.command_line", "setup.composition"),
    *("setup.declarations", "setup.notice", "setup.own_errors", "setup.references", "setup.regimes", "setup.resume"),
    *("setup.search_path", "setup.trust", "setup.unknown", "runs.display", "runs.fingerprint", "runs.imports"),
    *("runs.loggers", "runs.own_code", "runs.samples"),
)
"""Modules that these import and no figure depends on: they compose and check configurations, whose result has a hash of
its own, and show and observe runs."""

BY_PATH = {
    "envs/math/answers.py": ("envs.math.answer_parser",),
    "rollout/chat_template.py": ("rollout.template_trial",),
    "sandbox/launch.py": ("sandbox.guest.zygote",),
}
"""Programs that a file starts, which no import names."""

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

CACHE = ("engine.max_cache_gib", "policies.*.engine.max_cache_gib")
"""Keys that bound how many completions decode together.  Where the bound is reached, which it is in no shipped
experiment, the last bits of log-probabilities differ, and rarely a token."""

EXCLUDED = (
    *(*EVALUATION, *FETCHING, *CACHE, "scale.max_cache_gib", "loop.checkpoint", "run_dir", "resume", "dry_run"),
    *("trust", "name", "logger", "verbose", "detect_anomaly", "faults", "diagnostics", "execution"),
)
"""Every key that the training hash leaves out: evaluation, fetching, caches, checkpoints, paths, loggers, faults,
diagnostics, where the parts of a run are, and the display."""


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
    """16 hexadecimal digits over the code that trains and evaluates as ``config`` says: the modules of Troupe that are
    imported for it (:func:`code_files`), the shipped base models that it names, the user's code (:mod:`.own_code`), all
    as they were at the first call in this process; and the base models of a warm start, as they are now."""
    config = without_excluded(config)
    own = own_sources(config)
    shipped = frozenset(_texts(config)) & _shipped()
    code = _hash_with(frozenset(_names(config)), frozenset(own.items()), shipped)
    bases = {str(policy.get("base")) for policy in config.get("policies", {}).values() if isinstance(policy, Mapping)}
    made = [(base, file) for base in bases if (file := Path(base, CHECKSUMS)).is_file()]
    return _hash_of(made, code) if made else code


def own_code_hash(config: Mapping[str, Any]) -> str:
    """As :func:`code_hash`, over the user's code alone; "" where there is none."""
    own = own_sources(config)
    return _hash_of(own.items()) if own else ""


def code_names(config: Mapping[str, Any]) -> frozenset[str]:
    """The classes, functions and shipped base models that ``config`` names.  Code hashes of runs can be compared where
    these are the same: others import other modules."""
    config = without_excluded(config)
    return frozenset(_names(config)) | frozenset(_targets(config)) | (frozenset(_texts(config)) & _shipped())


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


def code_files(names: Iterable[str], package: Path = PACKAGE) -> dict[str, Path]:
    """The files of ``package`` that train and evaluate with the classes ``names`` (below the package), by path."""
    files = imported_files(package, [*ROOTS, *names], LEFT_OUT)
    return files | imported_files(package, [name for path in files for name in BY_PATH.get(path, ())], LEFT_OUT)


def _names(config: Mapping[str, Any]) -> Iterator[str]:
    """What ``config`` names of Troupe, below the package, by itself or in the user's code."""
    yield from (text.removeprefix("troupe.") for text in _texts(config) if text.startswith("troupe."))


def _texts(node: Any) -> Iterator[str]:
    """Every text below ``node``."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping | list):
        for each in node.values() if isinstance(node, Mapping) else node:
            yield from _texts(each)


def _targets(node: Any) -> Iterator[str]:
    """Every ``_target_`` below ``node``."""
    if isinstance(node, Mapping):
        target = node.get("_target_")
        yield from [target] if isinstance(target, str) else []
    if isinstance(node, Mapping | list):
        for each in node.values() if isinstance(node, Mapping) else node:
            yield from _targets(each)


@cache
def _shipped() -> frozenset[str]:
    """The names of the base models that are part of the package."""
    return frozenset(folder.name for folder in SHIPPED.iterdir() if folder.is_dir())


@cache
def _hash_with(
    names: frozenset[str], own: frozenset[tuple[str, Path]], bases: frozenset[str], package: Path = PACKAGE
) -> str:
    used = (name for _, file in own for name in imported_names(file))
    files = code_files(sorted({*names, *used}), package)
    shipped = [file for base in bases for file in (package / "models" / "shipped" / base).glob("*")]
    models = {file.relative_to(package).as_posix(): file for file in shipped if file.is_file() and file.suffix != ".md"}
    code = _hash_of([*files.items(), *models.items()])
    return _hash_of(own, code) if own else code


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

"""The user's own code: the modules outside of Troupe from which a run is built, and their commits."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

INSTALLED = {"site-packages", "dist-packages"}


def own_sources(config: Mapping[str, Any]) -> dict[str, Path]:
    """The source files of the user's code, by path within their package (``mine/worlds/game.py``).

    These are all files of the top-level modules that a ``_target_`` of ``config`` names, but for Troupe and its
    requirements, and of the modules that these files import, but for installed ones.  Nothing is imported, and a module
    that cannot be found has no files.
    """
    return _sources(own_packages([config]))


def own_packages(configs: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The top-level modules that a ``_target_`` of ``configs`` names, but for Troupe, its requirements and Python's."""
    return frozenset(name for config in configs for name in _named(config))


def commits(config: Mapping[str, Any], folders: Iterable[Path]) -> str:
    """The commits of the git checkouts with the user's code, and with ``folders`` of configurations, joined by " + ".

    A commit ends with ``-dirty`` where one of these sources, or a yaml of these folders, is not as committed; "" where
    there is no checkout.
    """
    files: dict[Path, list[str]] = {}
    for file in own_sources(config).values():
        files.setdefault(file.parent, []).append(file.name)
    places = [*files.items(), *((folder, [":(glob)**/*.yaml"]) for folder in folders)]
    by_commit: dict[str, bool] = {}
    for folder, paths in places:
        if commit := git(folder, "rev-parse", "HEAD"):
            dirty = bool(git(folder, "status", "--porcelain", "--", *paths))
            by_commit[commit] = dirty or by_commit.get(commit, False)
    return " + ".join(f"{commit[:12]}{'-dirty' if dirty else ''}" for commit, dirty in by_commit.items())


def git(folder: Path, *words: str) -> str:
    """What git prints in ``folder``; "" where there is no checkout, or no git."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:  # git is not installed
        return ""
    return done.stdout.strip()


def _named(node: Any) -> Iterator[str]:
    """The top-level names of the user's code in ``_target_``s."""
    if isinstance(node, Mapping):
        target = node.get("_target_")
        if isinstance(target, str):
            path = node.get("path") if target.startswith("hydra.utils.get_") else target
            yield from {str(path).partition(".")[0]} - _foreign()
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from _named(each)


@cache
def _foreign() -> frozenset[str]:
    """Troupe and its requirements, whose versions a run records, the standard library, and what has no file."""
    packages = {_requirement(line).removesuffix("_core") for line in requires("troupe-rl") or ()}
    return frozenset({"troupe", "yaml", "__main__", *packages, *sys.stdlib_module_names})


def _requirement(line: str) -> str:
    """The name in a requirement such as ``hydra-core>=1.3``, as a module would have it."""
    return re.split(r"[^\w-]", line, maxsplit=1)[0].lower().replace("-", "_")


@cache
def _sources(names: frozenset[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    pending, seen = [place for name in sorted(names) for place in _places(name)], set(names)
    while pending:
        place = pending.pop()
        for file in place.rglob("*.py") if place.is_dir() else [place]:
            files[file.relative_to(place.parent).as_posix()] = file
            new = _imports(file) - _foreign() - seen
            seen |= new
            pending += [each for name in sorted(new) for each in _places(name) if not INSTALLED & set(each.parts)]
    return files


def _places(module: str) -> list[Path]:
    """The folders of a top-level package, or the file of a top-level module; none where it cannot be found."""
    spec = find_spec(module)
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(folder) for folder in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.has_location and spec.origin and spec.origin.endswith(".py") else []


def _imports(file: Path) -> set[str]:
    """The top-level names that ``file`` imports; none where it is not Python."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level and node.module]
    return {name.partition(".")[0] for name in names}

"""The training trees that a run keeps, ``episodes/train_NNNNN.jsonl``: read back, and bounded in size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from ..errors import number_of
from ..experience import LARGEST_VOCABULARY
from .episodes import has_types
from .files import EPISODES, SECONDS, TIMES, RunDirectoryError, briefly, read_lines
from .tables import html_table

TREE_FORMAT = 1
"""The version of a line's schema that this code writes, its key ``tree_format``."""

TREE_KEYS = {
    **{"iteration": int, "task_id": str, "split": str, "sample": int, "watched": bool, "env_steps": int},
    **{"nodes": list, "edges": list, "pictures": list},
}
NODE_KEYS = {"id": int, "agent": str, "turn": int, "depth": int, "prompt": str, "candidates": list}
CANDIDATE_KEYS = {"text": str, "reward": int | float, "continued": bool, "token_ids": list, "logprobs": list}
OPTIONAL_KEYS = {"info": dict, "next": dict}
"""Of a candidate, where they are not null."""
PER_TOKEN = {"tokens": (str,)} | dict.fromkeys(
    ("logprobs", "learner_logprobs", "updated_logprobs", "penalties"), (int, float)
)
"""Lists with a value for each token, or none, and the types of the values."""


class TreeRecord(dict[str, Any]):
    """A training tree as plain data, docs/reports.md has its keys; a notebook shows its prompts and candidates."""

    def _repr_html_(self) -> str:
        return f"<p>{escape(self['task_id'])}, after {number_of(self['iteration'], 'iteration')}</p>" + "".join(
            f'<details open style="margin-left: {2 * node["depth"]}em"><summary>turn {node["turn"]}, '
            f"{escape(node['agent'])}</summary><pre>{escape(node['prompt'])}</pre>{_candidates(node)}</details>"
            for node in self["nodes"]
        )


def _candidates(node: Mapping[str, Any]) -> str:
    heads = ("", "went on", "reward", "advantage", "text")
    return html_table(
        heads,
        [
            (c, "yes" if each["continued"] else "", each["reward"], each.get("advantage"), each["text"])
            for c, each in enumerate(node["candidates"])
        ],
    )


class TreeFile:
    """The trees of one iteration, read when they are first asked for.  ``iteration`` counts the iterations before it.

    A line that is cut, is no tree, or has another version's schema is left out, and ``problems`` names it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.stem
        self.iteration = int(path.stem.partition("_")[2])

    @cached_property
    def _content(self) -> tuple[list[TreeRecord], list[str]]:
        name = f"{EPISODES}/{self.path.name}"
        lines, problems = read_lines(self.path.parents[1], name)
        trees, times = [], self._times()
        for number, tree in lines:
            if (version := tree.get("tree_format")) != TREE_FORMAT:
                problems.append(f"{name}, line {number}, has tree_format {version!r}, not {TREE_FORMAT}; left out.")
            elif problem := tree_problem(tree):
                problems.append(f"{name}, line {number}, is not a tree ({problem}) and is left out.")
            else:
                for key, values in times.get(number, {}).items():
                    for node, value in zip(tree["nodes"], values, strict=False):
                        node |= {key: value} if isinstance(value, int | float) else {}
                trees.append(TreeRecord(tree))
        if not lines and not problems:
            problems.append(f"{name} is empty.")
        return trees, briefly(problems)

    def _times(self) -> dict[int, dict[str, list[Any]]]:
        """Of each line's nodes, by key; older runs have none."""
        lines, _ = read_lines(self.path.parents[1], f"{SECONDS}/{self.path.name}")
        return {number: {key: row[key] for key in TIMES if isinstance(row.get(key), list)} for number, row in lines}

    @property
    def trees(self) -> list[TreeRecord]:
        """One per episode."""
        return self._content[0]

    @property
    def problems(self) -> list[str]:
        """Sentences about lines that are left out, or about a file that is empty or a folder."""
        return self._content[1]


def tree_files(run: Path) -> dict[int, TreeFile]:
    """By the number of iterations before it."""
    files = [TreeFile(path) for path in sorted((run / EPISODES).glob("train_*.jsonl")) if _is_tree_file(path)]
    return {file.iteration: file for file in files}


def read_trees(run: Path, iteration: int | None, *, tolerant: bool) -> list[TreeRecord]:
    """The trees of one iteration, or of all in their order.

    Raises :class:`RunDirectoryError` where there is no such file, naming those that there are; and, unless
    ``tolerant``, where a line is cut or no tree.
    """
    files = tree_files(run)
    if iteration is not None and iteration not in files:
        known = ", ".join(map(str, files)) or "none"
        raise RunDirectoryError(f"{run / EPISODES} has no trees of iteration {iteration}. Known: {known}")
    chosen = list(files.values()) if iteration is None else [files[iteration]]
    problems = [problem for file in chosen for problem in file.problems]
    if problems and not tolerant:
        raise RunDirectoryError(f"{run}: {problems[0]}")
    return [tree for file in chosen for tree in file.trees]


def thin(run: Path, most_bytes: int) -> None:
    """Remove files until all together have at most ``most_bytes``: each time the one whose neighbours are nearest to
    each other, so that those that stay are spread over the run.  The newest stays, whatever its size.
    """
    files = sorted(tree_files(run).values(), key=lambda file: file.iteration)
    while len(files) > 1 and sum(file.path.stat().st_size for file in files) > most_bytes:
        gaps = [after.iteration - before.iteration for before, after in zip(files, files[2:], strict=False)]
        path = files.pop(1 + gaps.index(min(gaps)) if gaps else 0).path
        path.unlink()
        (run / SECONDS / path.name).unlink(missing_ok=True)


def tree_problem(tree: Mapping[str, Any]) -> str:
    """Why ``tree`` cannot be shown, "" where it can."""
    if not has_types(tree, TREE_KEYS):
        return f"it needs {', '.join(TREE_KEYS)}"
    for index, node in enumerate(tree["nodes"]):
        if not isinstance(node, dict) or not has_types(node, NODE_KEYS) or node["id"] != index:
            return f"node {index} needs {', '.join(NODE_KEYS)}"
        for candidate in node["candidates"]:
            if not isinstance(candidate, dict) or not has_types(candidate, CANDIDATE_KEYS):
                return f"a candidate of node {index} needs {', '.join(CANDIDATE_KEYS)}"
            if wrong := [key for key, kind in OPTIONAL_KEYS.items() if not isinstance(candidate.get(key), kind | None)]:
                return f"a candidate of node {index} has {wrong[0]} of another type"
            if problem := _token_problem(candidate):
                return f"a candidate of node {index} {problem}"
    return _edge_problem(tree)


def _token_problem(candidate: Mapping[str, Any]) -> str:
    """A reader may look ids up in a table of the vocabulary, and each token's values by its place."""
    ids = candidate["token_ids"]
    if not all(type(token) is int and 0 <= token < LARGEST_VOCABULARY for token in ids):
        return f"has a token id that is no whole number below {LARGEST_VOCABULARY}"
    for name, kinds in PER_TOKEN.items():
        values = candidate.get(name)
        if values and not (isinstance(values, list) and all(type(value) in kinds for value in values)):
            return f"has {name} of another type"
        if values and len(values) != len(ids):
            return f"has {len(values)} {name} of {len(ids)} tokens"
    return ""


def _edge_problem(tree: Mapping[str, Any]) -> str:
    nodes = tree["nodes"]
    for number, edge in enumerate(tree["edges"]):
        members = edge.get("members") if isinstance(edge, dict) else None
        if not isinstance(members, dict) or not all(map(_is_place, members.values())):
            return f"edge {number} needs members, each a node and a candidate"
        if not all(node < len(nodes) and c < len(nodes[node]["candidates"]) for node, c in members.values()):
            return f"edge {number} names a candidate that is not there"
        child = edge.get("child")
        if child is not None and not (isinstance(child, int) and 0 <= child < len(nodes)):
            return f"edge {number} leads to node {child!r}, which is not there"
        if child is not None and any(child <= node for node, _ in members.values()):  # a reader would go round
            return f"edge {number} leads back to node {child}"
        if not isinstance(edge.get("outcome"), dict | None):
            return f"the outcome of edge {number} holds no keys"
    return ""


def _is_place(place: object) -> bool:
    return isinstance(place, list) and len(place) == 2 and all(isinstance(n, int) and n >= 0 for n in place)


def _is_tree_file(path: Path) -> bool:
    return re.fullmatch(r"train_\d+", path.stem) is not None

"""Tables: of texts, for pages of sweeps; of episodes, a row per message; of training trees, a row per tree and one per
candidate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..errors import AbsentError

if TYPE_CHECKING:
    from pandas import DataFrame

Cell = str | int | float | bool | None
LONGEST = 4000
"""Characters of a cell that is logged, at most."""


@dataclass(frozen=True)
class LogTable:
    """``columns`` and ``rows`` of one length; the first column counts episodes from 0."""

    name: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]

    def head(self, episodes: int) -> LogTable:
        """The rows of the first ``episodes`` episodes, with cells of at most :data:`LONGEST` characters."""
        first = (row for row in self.rows if isinstance(row[0], int) and row[0] < episodes)
        return replace(
            self, rows=[tuple(_cut(cell) if isinstance(cell, str) else cell for cell in row) for row in first]
        )


MESSAGE = ("episode", "task", "success", "turn", "agent", "saw", "said", "team", "local", "picture")
TREE = (
    *("episode", "task", "split", "sample", "watched", "nodes", "candidates", "env_steps", "reward", "live_nodes"),
    *("leaves", "success", "turns", "team_return"),
)
CANDIDATE = (
    *("episode", "task", "sample", "watched", "node", "parent", "turn", "agent", "candidate", "prompt", "text"),
    *("reward", "team", "local", "baseline", "advantage", "continued", "tokens", "mean_logprob_nats", "finish_reason"),
)


def episode_table(split: str, episodes: Iterable[Mapping[str, Any]]) -> LogTable:
    """One row per message of evaluated episodes, as ``episodes/SPLIT_ITERATION.jsonl`` has them; turns count from 0,
    ``picture`` is the world's before the turn."""
    rows: list[tuple[Cell, ...]] = []
    for number, episode in enumerate(episodes):
        pictures = [_rows(picture) for picture in episode.get("pictures") or ()]
        for message in episode["messages"]:
            turn = message["turn"]
            said = (message["saw"], message["said"], message.get("team"), message.get("local"))
            picture = pictures[turn] if turn < len(pictures) else ""
            rows.append((number, episode["task_id"], episode["success"], turn, message["agent"], *said, picture))
    return LogTable(f"episodes/{split}", MESSAGE, rows)


def tree_table(trees: Iterable[Mapping[str, Any]]) -> LogTable:
    """One row per training tree: ``reward`` is the mean over its candidates, ``live_nodes`` are those whose candidates
    differ in it; ``success``, ``turns`` and ``team_return`` are means over the ``leaves``, the ends that were reached.
    """
    rows: list[tuple[Cell, ...]] = []
    for number, tree in enumerate(trees):
        rewards = [[candidate["reward"] for candidate in node["candidates"]] for node in tree["nodes"]]
        ends = [outcome for edge in tree["edges"] if (outcome := edge.get("outcome"))]
        place = (number, tree["task_id"], tree["split"], tree["sample"], tree["watched"])
        sizes = (len(rewards), sum(map(len, rewards)), tree["env_steps"])
        learnt = (_mean([reward for own in rewards for reward in own]), sum(len(set(own)) > 1 for own in rewards))
        reached = (_mean([end[key] for end in ends if key in end]) for key in ("success", "turns", "team_return"))
        rows.append((*place, *sizes, *learnt, len(ends), *reached))
    return LogTable("trees", TREE, rows)


def candidate_table(trees: Iterable[Mapping[str, Any]]) -> LogTable:
    """One row per candidate of training trees, as ``episodes/train_ITERATION.jsonl`` has them."""
    rows: list[tuple[Cell, ...]] = []
    for number, tree in enumerate(trees):
        for node in tree["nodes"]:
            place = (number, tree["task_id"], tree["sample"], tree["watched"], node["id"], node.get("parent"))
            for c, candidate in enumerate(node["candidates"]):
                logprobs = candidate["logprobs"]
                rows.append(
                    (
                        *(*place, node["turn"], node["agent"], c, node["prompt"], candidate["text"]),
                        *map(candidate.get, ("reward", "team", "local", "baseline", "advantage", "continued")),
                        *(len(candidate["token_ids"]), _mean(logprobs)),
                        candidate.get("finish_reason"),
                    )
                )
    return LogTable("trees", CANDIDATE, rows)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _rows(picture: Any) -> str:
    return str(picture.get("text", "")) if isinstance(picture, Mapping) else "\n".join(picture)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … {len(text) - LONGEST:,} more characters"


@dataclass(frozen=True)
class PlainTable:
    """``heads`` and ``lines`` of one length, with a ``note`` below."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""


def data_frame(name: str, rows: Sequence[Any], columns: Sequence[str] | None = None) -> DataFrame:
    """``rows`` as a table, for what is called ``name``.

    Raises :class:`~troupe.errors.AbsentError` where pandas is not installed.
    """
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise AbsentError(f"{name} is a pandas DataFrame: install troupe-rl[notebook]") from error
    return DataFrame(rows, columns=None if columns is None else list(columns))


CELL = ' style="text-align: left; white-space: pre-wrap; padding: 2px 8px"'
"""Of a notebook's table: a text has several lines, and notebooks set cells to the right."""


def html_table(heads: Sequence[str], lines: Iterable[Sequence[Cell]], caption: str = "") -> str:
    """A table for a notebook, in which all text stays text: a model may have written it."""
    texts = [
        [f"{cell:.3g}" if isinstance(cell, float) else "" if cell is None else str(cell) for cell in line]
        for line in lines
    ]
    body = "".join(f"<tr>{''.join(f'<td{CELL}>{escape(text)}</td>' for text in line)}</tr>" for line in texts)
    head = f"<tr>{''.join(f'<th{CELL}>{escape(text)}</th>' for text in heads)}</tr>" if heads else ""
    return f"<table><caption{CELL}>{escape(caption)}</caption>{head}{body}</table>"

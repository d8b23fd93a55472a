"""The data of the report's explorer: every episode that a run keeps, in compressed chunks that the page opens one by
one.

An evaluated episode takes the form of a tree whose nodes have one candidate, so that the page draws one kind of thing.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from ..errors import CONTROLS
from ..runs.episodes import EpisodeFile, episode_files
from ..runs.run import RunReader
from .episodes import BASICS, LONGEST, pictures_of, plain, session_of
from .evaluations import UNTRAINED, speakers_of, weights_of
from .values import numeric

CHUNK = 200_000
"""Characters of JSON after which a chunk ends: a page opens one in a few milliseconds."""
KINDS = ("malformed", "cut", "blocked", "timeout", "wrong")
"""Of failures: what was wrong with a message, or that no message was and the episode failed."""
MOST = 96_000_000
"""Compressed characters on the page at most; later episodes are left out, and the page says so."""


@dataclass
class Source:
    """Episodes of one kind: the training trees, the evaluations on a split, or a condition of a later evaluation."""

    title: str
    records: Iterable[tuple[int | None, Mapping[str, Any]]]
    """(Iterations before it, tree); None: not known, or the checkpoint that was best on validation."""
    weights: str | None = None
    """Of a later evaluation, in words; None: the iterations say it."""
    others: str = ""
    """Who spoke in place of the run's own policies, in words."""


@dataclass(frozen=True)
class Explorer:
    """``index``: a compressed JSON object of what the list needs; ``chunks``: compressed lists of trees.

    ``count`` episodes are there, ``left_out`` are not; ``problems`` are sentences about lines that cannot be shown.
    """

    index: str
    chunks: Sequence[str]
    agents: Sequence[str]
    count: int
    left_out: int
    problems: Sequence[str]


def explorer(run: RunReader, most: int = MOST) -> Explorer:
    """Of the files of ``run``; at most ``most`` compressed characters."""
    problems: list[str] = []
    builder = _Builder(most)
    for source in _sources(run, problems):
        builder.add(source)
    return builder.done(problems)


# ---- where episodes come from ---------------------------------------------------------------------------------------


def _sources(run: RunReader, problems: list[str]) -> Iterator[Source]:
    trees = [(file.iteration, tree) for file in run.tree_files.values() for tree in file.trees]
    problems += [problem for file in run.tree_files.values() for problem in file.problems]
    yield Source("training trees", [(iteration, _shown(tree)) for iteration, tree in trees])
    for split in ("validation", "test"):
        files = [file for file in run.episode_files.values() if file.split == split]
        yield Source(f"{split} episodes", _evaluated(files))
        problems += [problem for file in files for problem in file.problems]
    for folder in run.evaluations:
        files = list(episode_files(folder, r".+").values())
        weights, others = weights_of(folder), ", ".join(speakers_of(folder))
        for file in files:
            # A number in the name of a condition is no iteration.
            played = ((0 if weights == UNTRAINED else None, episode_tree(episode)) for episode in file.episodes)
            yield Source(f"{folder.name}: {file.name}", played, weights, others)
        problems += [f"{folder.name}: {problem}" for file in files for problem in file.problems]


def _evaluated(files: Iterable[EpisodeFile]) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    for file in files:
        for episode in file.episodes:
            yield file.iteration, episode_tree(episode)


def episode_tree(episode: Mapping[str, Any]) -> dict[str, Any]:
    """An evaluated episode in the form of a tree; agents that act at once are one step of it."""
    drawn = [picture for picture in map(_picture, pictures_of(episode)) if picture]
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for depth, (_, step) in enumerate(groupby(enumerate(episode["messages"]), _step)):
        first = len(nodes)
        members: dict[str, list[int]] = {}
        for index, message in step:
            turn = message["turn"]
            node = {
                **{"id": index, "parent": first - 1 if first else None, "agent": plain(message["agent"])},
                **{"turn": turn, "depth": depth, "prompt": plain(message["saw"])},
                **{"candidates": [_said(message)], "session": session_of(message)},
            }
            nodes.append(node | ({"picture": turn} if 0 <= turn < len(drawn) else {}))
            members[message["agent"]] = [index, 0]
        edges.append({"members": members, "child": len(nodes)})
    if edges:
        team = sum(_last_of_turns(episode["messages"]).values())
        end = {"success": episode["success"], "turns": episode["turns"], "team_return": team}
        edges[-1] = {"members": edges[-1]["members"], "outcome": end}
        then = {"done": True, "success": episode["success"]} | ({"picture": len(drawn) - 1} if drawn else {})
        for index, _ in edges[-1]["members"].values():
            nodes[index]["candidates"][0]["next"] = then
    record = {"task_id": plain(episode["task_id"]), "nodes": nodes, "edges": edges, "pictures": drawn}
    tokens = episode.get("tokens")
    lost = {"problem": plain(str(episode.get("failure") or "the episode was lost"))} if episode.get("lost") else {}
    return record | ({"tokens": tokens} if numeric(tokens) else {}) | lost


def _step(place: tuple[int, Mapping[str, Any]]) -> Any:
    """Of (index, message): what the messages of agents that act at once have in common."""
    index, message = place
    return message.get("step", index)


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    rewards = {name: message[name] for name in ("team", "local") if numeric(message.get(name))}
    rewards |= {"reward": sum(rewards.values())} if len(rewards) == 2 else {}  # as the metric eval/AGENT/reward
    info = {str(key): value for key, value in message.items() if key not in BASICS and _is_number(value)}
    length = {"length": message["tokens"]} if numeric(message.get("tokens")) else {}
    return {"text": plain(message["said"]), "continued": True, "info": info, **rewards, **length}


def _last_of_turns(messages: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """The team's reward of the message that ended each turn."""
    return {message["turn"]: message["team"] for message in messages if numeric(message.get("team"))}


def _picture(rows: Any) -> dict[str, str] | None:
    if isinstance(rows, list) and rows and all(isinstance(row, str) for row in rows):
        return {"text": plain("\n".join(rows))}
    if isinstance(rows, dict) and isinstance(rows.get("text"), str):
        return {key: rows[key] for key in ("svg", "text") if isinstance(rows.get(key), str)}
    return None


def _shown(tree: Mapping[str, Any]) -> dict[str, Any]:
    """``tree`` with control characters made visible, and texts of a bounded length."""
    nodes = []
    for node in tree["nodes"]:
        candidates = []
        for candidate in node["candidates"]:
            tokens = candidate.get("tokens")
            short = len(candidate["text"]) <= LONGEST and isinstance(tokens, list)
            shown = [str(token).translate(CONTROLS) for token in tokens] if short else []
            candidates.append({**candidate, "text": plain(candidate["text"]), "tokens": shown})
        texts = {"agent": plain(node["agent"]), "prompt": plain(node["prompt"]), "session": session_of(node)}
        nodes.append({**node, **texts, "candidates": candidates})
    pictures = [_picture(each) or {"text": ""} for each in tree["pictures"]]
    return {**tree, "task_id": plain(tree["task_id"]), "nodes": nodes, "pictures": pictures}


def _is_number(value: object) -> bool:
    return isinstance(value, bool) or numeric(value)


# ---- how they are packed --------------------------------------------------------------------------------------------


class _Builder:
    """Collects trees into chunks, and what the list shows of each into columns."""

    def __init__(self, most: int) -> None:
        self.most, self.left_out, self.size = most, 0, 0
        self.sources: list[str] = []
        self.weights: list[str | None] = []
        self.others: list[str] = []
        self.names: dict[str, dict[str, int]] = {"tasks": {}, "agents": {}}
        self.rows: list[list[Any]] = []
        self.chunks: list[str] = []
        self._open: list[str] = []

    def add(self, source: Source) -> None:
        number = len(self.sources)
        self.sources.append(source.title)
        self.weights.append(source.weights)
        self.others.append(plain(source.others))
        for iteration, tree in source.records:
            if self.size > self.most:
                self.left_out += 1
                continue
            text = _json(tree)
            place = [len(self.chunks), len(self._open)]
            self.rows.append([number, iteration, *self._row(tree), *place])
            self._open.append(text)
            if sum(map(len, self._open)) > CHUNK:
                self._close()

    def _row(self, tree: Mapping[str, Any]) -> list[Any]:
        """Task, sample, success, return, turns, tokens, largest advantage, watched, by agent (mean reward, length), and
        the numbers of kinds of failures; the page's 2_store.js names them."""
        nodes = tree["nodes"]
        outcomes = [edge["outcome"] for edge in tree["edges"] if isinstance(edge.get("outcome"), dict)]
        said = [(node["agent"], c) for node in nodes for c in node["candidates"] if c["continued"]]
        every = [c for node in nodes for c in node["candidates"]]
        agents: dict[int, list[float | None]] = {}
        for agent in dict.fromkeys(agent for agent, _ in said):
            own = [c for name, c in said if name == agent]
            rewards = [value for c in own if numeric(value := c.get("reward"))]
            agents[self._number("agents", agent)] = [_mean(rewards), _length(own)]
        success = _mean([float(bool(each.get("success"))) for each in outcomes])
        kinds = {kind for c in every for kind in _faults(c)} | (
            {"timeout"} if "time" in tree.get("problem", "") else set()
        )
        kinds |= {"wrong"} if not kinds and success is not None and success < 1 else set()
        advantages = [abs(c["advantage"]) for c in every if numeric(c.get("advantage"))]
        return [
            self._number("tasks", tree["task_id"]),
            tree.get("sample", 0),
            success,
            _mean([each["team_return"] for each in outcomes if numeric(each.get("team_return"))]),
            max((node["turn"] for node in nodes), default=-1) + 1,
            tree.get("tokens", _length([c for _, c in said])),
            round(max(advantages, default=0.0), 3),
            int(tree.get("watched") is True),
            agents,
            [number for number, kind in enumerate(KINDS) if kind in kinds],
        ]

    def _number(self, kind: str, name: str) -> int:
        return self.names[kind].setdefault(name, len(self.names[kind]))

    def _close(self) -> None:
        if self._open:
            self.chunks.append(packed(f"[{','.join(self._open)}]"))
            self.size += len(self.chunks[-1])
            self._open = []

    def done(self, problems: Sequence[str]) -> Explorer:
        self._close()
        names = {kind: list(numbers) for kind, numbers in self.names.items()}
        names["kinds"] = list(KINDS)
        of_sources = {"sources": self.sources, "weights": self.weights, "others": self.others}
        index = packed(_json({**of_sources, "rows": self.rows, **names}))
        return Explorer(index, self.chunks, names["agents"], len(self.rows), self.left_out, problems)


def _faults(candidate: Mapping[str, Any]) -> Iterator[str]:
    """What was wrong with a message, by the names of the world's own numbers."""
    if candidate.get("finish_reason") == "length":
        yield "cut"
    for name, value in (candidate.get("info") or {}).items():
        word = str(name).replace("timed_out", "timeout")
        yield from (kind for kind in KINDS if kind in word and _is_number(value) and value > 0)


def _json(value: Any) -> str:
    """As browsers read it: without numbers that are not finite, which Python writes and reads."""
    form: dict[str, Any] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    try:
        return json.dumps(value, **form)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda name: None), **form)


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 4) if values else None


def _length(candidates: Sequence[Mapping[str, Any]]) -> int | None:
    """Their tokens; None where they are not known, as in evaluations of older versions."""
    lengths: list[Any] = [len(c["token_ids"]) if "token_ids" in c else c.get("length") for c in candidates]
    return None if None in lengths else sum(lengths)


def packed(text: str) -> str:
    """``text`` as base64 of raw deflate, which the page reads with a DecompressionStream."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    data = compressor.compress(text.encode("utf-8", "backslashreplace")) + compressor.flush()
    return base64.b64encode(data).decode()

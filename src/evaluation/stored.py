"""The episodes that a run keeps, evaluated ones and training trees, as messages that can be played once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import nearest
from ..runs.episodes import EpisodeFile, episode_files
from ..runs.run import RunReader
from ..runs.trees import TreeFile
from .records import EvaluationError

UNCHECKED = {"step", "tokens", "cut_prompts", "retokenised_prompts"}
"""What a message records beside the world's answer."""
LISTED = 5
"""Tasks that an error lists at most."""


@dataclass(frozen=True)
class StoredMessage:
    """A message of ``agent`` at ``turn``, from 0, and the world's answer as far as it is stored: ``answer`` has the
    keys of an evaluated episode's message (what the agent saw, rewards, numbers of the world).  ``rewards`` as they are
    stored, ``team`` and ``local``: of a tree also those that are no answer of the world, but a mean or an estimate.

    ``picture`` of the world before it, rows of characters, "" where there is none.  ``candidates``: the texts that were
    sampled from its prompt, its own the ``chosen`` one; ``node`` is their node, None of an evaluated episode.
    """

    turn: int
    agent: str
    said: str
    answer: Mapping[str, Any]
    picture: str = ""
    candidates: tuple[str, ...] = ()
    chosen: int = 0
    node: int | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredEpisode:
    """An episode of the file ``name``: ``test_00010``, ``train_00005``, or ``EVALUATION/CONDITION`` of one made later.

    ``iteration``: the iterations before it, where it belongs to a number of them.  ``watched``: a training tree of a
    validation task.  ``end``: the last picture of the world.
    """

    name: str
    split: str
    iteration: int | None
    task_id: str
    sample: int
    messages: Sequence[StoredMessage]
    success: bool
    turns: int
    end: str = ""
    watched: bool = False

    @property
    def place(self) -> str:
        return f"{self.name}/{self.task_id}"


def locate_episode(run: RunReader, place: str, sample: int | None = None, node: int | None = None) -> StoredEpisode:
    """The episode that ``place`` names, ``FILE/TASK`` (or ``FILE/NUMBER``, from 0); of several of a task the
    ``sample``-th, from 0.  Of a tree the path that went on, through ``node`` where it is given.

    Raises :class:`EvaluationError` naming the files, or the tasks, that there are.
    """
    files = _files(run)
    name = max((each for each in files if f"{place}/".startswith(f"{each}/")), key=len, default=None)
    if name is None:
        hint = nearest(place.partition("/")[0], list(files)) if files else ""
        raise EvaluationError(f"episode={place}: no file of {run.path} has that name{hint or '; it has none'}")
    file, task = files[name], place[len(name) + 1 :]
    records = file.trees if isinstance(file, TreeFile) else file.episodes
    same = [record for record in records if record["task_id"] == task]
    if not same and task.isdecimal() and int(task) < len(records):
        same = [records[int(task)]]
    if not same:
        ids = list(dict.fromkeys(record["task_id"] for record in records))
        listed = f"{', '.join(ids[:LISTED])}{f' and {len(ids) - LISTED} more' if len(ids) > LISTED else ''}"
        problem = f" ({file.problems[0]})" if file.problems else ""
        raise EvaluationError(f"episode={place}: {name} has no task '{task}'; it has {listed or 'none'}{problem}")
    if not 0 <= (sample or 0) < len(same):
        raise EvaluationError(f"sample={sample}: {place} has {len(same)} episode{'s' if len(same) > 1 else ''}, from 0")
    record = same[sample or 0]
    if isinstance(file, TreeFile):
        return _from_tree(name, file.iteration, record, sample or 0, node, run.config)
    if node is not None:
        raise EvaluationError(f"node={node}: {place} is an evaluated episode, which has no nodes; give turn and agent")
    return _from_episode(name, file, record, sample or 0)


def _files(run: RunReader) -> dict[str, EpisodeFile | TreeFile]:
    files: dict[str, EpisodeFile | TreeFile] = {file.name: file for file in run.tree_files.values()}
    files |= run.episode_files
    for folder in run.evaluations:
        files |= {f"{folder.name}/{name}": file for name, file in episode_files(folder, r".+").items()}
    return files


def _from_episode(name: str, file: EpisodeFile, record: Mapping[str, Any], sample: int) -> StoredEpisode:
    if record.get("lost") or not record["messages"]:
        raise EvaluationError(f"{name}/{record['task_id']} was lost: {record.get('failure') or 'it has no messages'}")
    pictures = [_rows(picture) for picture in record.get("pictures") or []]
    messages, seen = [], set()
    for message in record["messages"]:
        turn = message["turn"]
        first = turn not in seen and 0 <= turn < len(pictures)
        seen.add(turn)
        answer = {key: value for key, value in message.items() if key not in UNCHECKED}
        before = pictures[turn] if first else ""
        messages.append(StoredMessage(turn, message["agent"], message["said"], answer, before, (message["said"],)))
    split = file.split if "/" not in name else ""
    outcome = (record["success"], record["turns"], pictures[-1] if pictures else "")
    return StoredEpisode(name, split, file.iteration, record["task_id"], sample, messages, *outcome)


def _rows(picture: Any) -> str:
    if isinstance(picture, dict):
        return str(picture.get("text", ""))
    return "\n".join(map(str, picture)) if isinstance(picture, list) else ""


# ---- trees ----------------------------------------------------------------------------------------------------------


def _from_tree(
    name: str, iteration: int, tree: Mapping[str, Any], sample: int, node: int | None, config: Mapping[str, Any]
) -> StoredEpisode:
    if node is not None and not 0 <= node < len(tree["nodes"]):
        raise EvaluationError(f"node={node}: {name}/{tree['task_id']} has {len(tree['nodes'])} nodes, from 0")
    edges = _path(tree, node)
    asked_world = _asked_world(config)
    places = [(edge, agent, place) for edge in edges for agent, place in edge["members"].items()]
    messages = [_message(tree, *each, asked_world) for each in places]
    outcome = edges[-1].get("outcome") or {} if edges else {}
    if not messages:
        raise EvaluationError(f"{name}/{tree['task_id']} is a tree without a path")
    turns = outcome.get("turns", messages[-1].turn + 1)
    success = bool(outcome.get("success"))
    _, _, (node, c) = places[-1]
    end = _tree_picture(tree, (tree["nodes"][node]["candidates"][c].get("next") or {}).get("picture"))
    of_task = (tree["task_id"], sample, messages, success, turns, end)
    return StoredEpisode(name, str(tree.get("split")), iteration, *of_task, watched=bool(tree.get("watched")))


def _path(tree: Mapping[str, Any], node: int | None) -> list[Mapping[str, Any]]:
    """The joint actions from the root to a leaf, through ``node``: those that led there, and from there on the first of
    each node that went on."""
    by_first: dict[int, list[Mapping[str, Any]]] = {}
    for edge in tree["edges"]:
        by_first.setdefault(min(place[0] for place in edge["members"].values()), []).append(edge)
    goal = None if node is None else next((first for first, e in by_first.items() if _speaks(e[0], node)), None)
    leading: list[Mapping[str, Any]] = []
    while goal:
        edge = next((edge for edge in tree["edges"] if edge.get("child") == goal), None)
        if edge is None:
            raise EvaluationError(f"node={node}: no joint action of the tree leads to it")
        leading.insert(0, edge)
        goal = min(place[0] for place in edge["members"].values())
    path, first = leading, leading[-1]["child"] if leading else 0
    while first is not None and first in by_first:
        edges = by_first[first]
        edge = next((edge for edge in edges if edge.get("child") is not None or edge.get("outcome")), edges[0])
        path.append(edge)
        first = edge.get("child")
    return path


def _speaks(edge: Mapping[str, Any], node: int) -> bool:
    return any(place[0] == node for place in edge["members"].values())


def _asked_world(config: Mapping[str, Any]) -> bool:
    """Whether ``team`` of a candidate is the world's own answer to it, by the sampler."""
    algorithm = config.get("algorithm", {})
    target, team = algorithm.get("sampler", {}).get("_target_", ""), (algorithm.get("reward") or {}).get("team", "own")
    return str(target).endswith(("TreeSampler", "ChainSampler")) and team == "own"


def _message(
    tree: Mapping[str, Any], edge: Mapping[str, Any], agent: str, at: Sequence[int], asked_world: bool
) -> StoredMessage:
    """``at`` is a node and one of its candidates, in the joint action ``edge``."""
    node, c = at
    place = tree["nodes"][node]
    candidate = place["candidates"][c]
    answer: dict[str, Any] = {"session": place["session"]} if "session" in place else {}
    if sum([node, c] in list(edge["members"].values()) for edge in tree["edges"]) <= 1:  # else they are means
        answer |= {**candidate.get("info", {}), "local": candidate.get("local")}
        answer |= {"team": candidate.get("team")} if asked_world else {}
    before = _tree_picture(tree, place.get("picture"))
    texts = tuple(each["text"] for each in place["candidates"])
    earned = {"team": edge.get("team", candidate.get("team")), "local": candidate.get("local")}
    rewards = {key: value for key, value in earned.items() if value is not None}
    return StoredMessage(place["turn"], agent, candidate["text"], answer, before, texts, c, node, rewards)


def _tree_picture(tree: Mapping[str, Any], index: Any) -> str:
    known = isinstance(index, int) and 0 <= index < len(tree["pictures"])
    return _rows(tree["pictures"][index]) if known else ""

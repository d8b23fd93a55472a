"""A training tree as a line of ``episodes/train_NNNNN.jsonl``; docs/reports.md has the schema."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from statistics import fmean
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..algorithms.credit.base import CreditRule, GroupRelative, Share, group_scale
from ..algorithms.credit.counterfactual import Counterfactual
from ..experience import Candidate, Episode, JointAction, Node
from ..rollout.chat_codec import ChatCodec
from ..runs.trees import TREE_FORMAT
from .pictures import Pictures

Scores = dict[Candidate, tuple[float, ...]]
"""Of a candidate, a log-probability for each of its tokens, nats."""


@dataclass(frozen=True)
class Comparison:
    """What a candidate's advantage comes from: (``value`` - ``baseline``) / ``scale``.  ``value``: its reward, or the
    return from there on, by its credit rule.  Without a scale only the baseline is known.
    """

    baseline: float
    value: float | None = None
    scale: float | None = None


@dataclass
class TrainingTree:
    """An episode that is kept.  ``watched``: it was played for this alone.

    ``before`` and ``after``: log-probabilities under the learner at the update's start and after it; none of a policy
    that does not learn.
    """

    episode: Episode
    watched: bool = False
    pictures: Pictures = field(default_factory=Pictures)
    before: Scores = field(default_factory=dict)
    after: Scores = field(default_factory=dict)
    baselines: Mapping[Candidate, Comparison] = field(default_factory=dict)


def tree_record(
    tree: TrainingTree,
    iteration: int,
    policies: Mapping[str, str],
    tokenizers: Mapping[str, PreTrainedTokenizerBase | ChatCodec],
) -> dict[str, Any]:
    """``tree``, played after ``iteration`` iterations, as plain data; ``policies`` maps agent to policy, and
    ``tokenizers`` are by policy.
    """
    episode = tree.episode
    reach, images = episode.reach, _Images()
    depths: list[int] = []
    nodes = []
    for index, node in enumerate(episode.nodes):
        depths.append(0 if node.parent is None else depths[node.parent] + 1)
        place = {"id": index, "parent": node.parent, "agent": node.agent, "turn": node.turn, "depth": depths[-1]}
        tokenizer = tokenizers.get(policies[node.agent])
        nodes.append(
            place
            | {"reach": reach[index], "prompt": prompt_text(tokenizer, node), "prompt_tokens": len(node.prompt_ids)}
            | ({"session": node.session} if node.session else {})
            | ({"cut": True} if node.cut else {})
            | _times(node)
            | ({"value": node.value} if node.value is not None else {})
            | images.key("picture", tree.pictures.before.get(index))
            | {"candidates": [_candidate(tree, index, c, tokenizer, images) for c in range(len(node.candidates))]}
        )
    return {
        "tree_format": TREE_FORMAT,
        "iteration": iteration,
        "watched": tree.watched,
        "task_id": episode.task.task_id,
        "world": episode.task.world,
        "split": episode.task.split,
        "sample": episode.sample,
        "best_of_k": episode.best_of_k,
        "env_steps": episode.env_steps,
        "policies": {agent: policies[agent] for agent in dict.fromkeys(node.agent for node in episode.nodes)},
        "nodes": nodes,
        "edges": [_edge(edge) for edge in episode.edges],
        "pictures": images.pictures,
    } | ({"problem": tree.pictures.problem} if tree.pictures.problem else {})


def _times(node: Node) -> dict[str, float]:
    waited = node.candidates[0].completion.waited if node.candidates else None
    times = {"seconds": node.seconds, "waited": waited}
    return {name: round(value, 4) for name, value in times.items() if value is not None}


def _candidate(
    tree: TrainingTree, index: int, c: int, tokenizer: PreTrainedTokenizerBase | ChatCodec | None, images: _Images
) -> dict[str, Any]:
    candidate = tree.episode.nodes[index].candidates[c]
    completion, followed = candidate.completion, tree.pictures.after.get((index, c))
    record: dict[str, Any] = {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "version": completion.version,
        "token_ids": list(completion.token_ids),
        "tokens": token_texts(tokenizer, completion.token_ids),
        "logprobs": _rounded(completion.logprobs),
        "local": candidate.local,
        "team": candidate.team,
        "reward": candidate.reward,
        "overlong": candidate.overlong,
        **_compared(tree.baselines.get(candidate), candidate.advantage),
        "advantage": candidate.advantage,
        "continued": candidate.continued,
        "info": dict(candidate.info),
    }
    for name, scores in (("learner_logprobs", tree.before), ("updated_logprobs", tree.after)):
        record |= {name: _rounded(scores[candidate])} if candidate in scores else {}
    record |= {"own_outcome": candidate.own_outcome} if candidate.own_outcome else {}
    record |= {"versions": list(completion.versions)} if completion.versions else {}
    record |= {"penalties": _rounded(candidate.penalties)} if candidate.penalties else {}
    if followed is not None:
        next_picture = images.key("picture", followed["picture"])
        record["next"] = {"success": followed["success"], "done": followed["done"], **next_picture}
    return record


def _compared(comparison: Comparison | None, advantage: float | None) -> dict[str, Any]:
    """The baseline; with value and scale where these give the ``advantage``, which a rule may change further."""
    if comparison is None or comparison.value is None or not comparison.scale or advantage is None:
        return {"baseline": comparison and comparison.baseline}
    result = (comparison.value - comparison.baseline) / comparison.scale
    same = isclose(result, advantage, rel_tol=1e-6, abs_tol=1e-9)
    return {"baseline": comparison.baseline} | ({"value": comparison.value, "scale": comparison.scale} if same else {})


def _edge(edge: JointAction) -> dict[str, Any]:
    outcome = edge.outcome and {key: value for key, value in vars(edge.outcome).items() if value is not None}
    record = {"child": edge.child, "outcome": outcome, "reward": edge.reward, "team": edge.team}
    members = {agent: list(place) for agent, place in edge.members.items()}
    return {"members": members, **{key: value for key, value in record.items() if value is not None}}


class _Images:
    """The pictures of a tree, each once."""

    def __init__(self) -> None:
        self.pictures: list[dict[str, str]] = []
        self._index: dict[str, int] = {}

    def key(self, name: str, picture: Mapping[str, str] | None) -> dict[str, int]:
        """``{name: index}`` of ``picture``; nothing where there is none."""
        if picture is None:
            return {}
        text = picture.get("svg", "") + picture["text"]
        if text not in self._index:
            self._index[text] = len(self.pictures)
            self.pictures.append(dict(picture))
        return {name: self._index[text]}


def baselines(credit: CreditRule, episodes: Sequence[Episode]) -> dict[Candidate, Comparison]:
    """Of a candidate, its value and what that was compared with: the critic's value of its node, what the
    node earned without the message, or the mean over its group.  None of a candidate that has several values, or
    that a rule judges by another measure.
    """
    own: dict[Candidate, Comparison] = {}
    if isinstance(credit, GroupRelative) and credit.baseline in ("mean", "leave_one_out"):
        own = _group_means(credit, episodes)
    values = _values(episodes, removed=isinstance(credit, Counterfactual))
    return own | {candidate: Comparison(value) for candidate, value in values}


def _group_means(credit: GroupRelative, episodes: Sequence[Episode]) -> dict[Candidate, Comparison]:
    groups: dict[Hashable, list[float]] = {}
    own: dict[Candidate, list[tuple[Hashable, Share]]] = {}
    for episode in episodes:
        for key, share in credit.shares(episode):
            groups.setdefault(key, []).append(share.value)
            for candidate in share.candidates:
                own.setdefault(candidate, []).append((key, share))
    rule = (credit.baseline, credit.normalise, credit.std_floor)
    scales = {key: group_scale(values, *rule) for key, values in groups.items() if len(values) > 1}
    return {
        candidate: Comparison(fmean(groups[key]), share.value, scales.get(key, 0.0) / (share.weight or 1.0))
        for candidate, [(key, share), *more] in own.items()
        if not more
    }


def _values(episodes: Sequence[Episode], *, removed: bool) -> Iterator[tuple[Candidate, float]]:
    for episode in episodes:
        for node, candidate in episode.candidates():
            value = node.removed if removed else node.value
            if value is not None:
                yield candidate, value


def prompt_text(tokenizer: PreTrainedTokenizerBase | ChatCodec | None, node: Node) -> str:
    """The prompt as the policy read it, special tokens included; of a server's policy, its messages."""
    if isinstance(tokenizer, ChatCodec):
        messages = tokenizer.messages(node.prompt_ids)
        return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)
    if tokenizer is None or not node.prompt_ids:
        return ""
    return str(tokenizer.decode(list(node.prompt_ids), skip_special_tokens=False))


def token_texts(tokenizer: PreTrainedTokenizerBase | ChatCodec | None, ids: Sequence[int]) -> list[str]:
    """What each token adds to the text, special tokens included; "" for the first tokens of a character that several
    make up, which the last of them has.
    """
    if tokenizer is None or isinstance(tokenizer, ChatCodec):
        return []
    texts: list[str] = []
    start, end = 0, 0  # the tokens that are decoded again for the next one's context, see PreTrainedTokenizer.decode
    for count in range(1, len(ids) + 1):
        before = str(tokenizer.decode(list(ids[start:end]), skip_special_tokens=False))
        now = str(tokenizer.decode(list(ids[start:count]), skip_special_tokens=False))
        if now.endswith("\ufffd") and count < len(ids):
            texts.append("")
            continue
        texts.append(now[len(before) :])
        start, end = end, count
    return texts


def _rounded(values: Sequence[float]) -> list[float]:
    """Six decimals: of 1e-6 nats nobody can see anything, and a line is a third as long."""
    return [round(value, 6) for value in values]

"""The nouns of Troupe: what a rollout produces, what credit annotates and what a learner consumes.

Shape glossary, used in every docstring:

====  =====================================================================
``B``  candidates in a batch
``C``  tokens of the longest completion in a batch
``R``  rows of a batch: prompts, each with the completions that share it
``T``  tokens of the longest row in a batch
``K``  candidates of one node, sampled from one prompt
``V``  vocabulary
====  =====================================================================

Log-probabilities are natural logarithms (nats).  Nothing here knows an engine, a world or a network.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

Split = Literal["train", "validation", "test"]
FinishReason = Literal["stop", "length"]
Topology = Literal["tree", "chain", "joint", "replay"]
"""The shape of the episodes that a sampler gives; credit rules declare which ones they can judge."""
Message = Mapping[str, str]
"""One chat message: ``{"role": ..., "content": ...}``."""


@dataclass(frozen=True)
class Task:
    """One problem instance of a world.

    ``task_id`` is stable and derives from the content; ``data`` is whatever the world needs to reset to it.  ``world``
    names one of several that are played at once.
    """

    task_id: str
    split: Split
    data: Mapping[str, Any]
    world: str = ""


@dataclass(frozen=True)
class Sampling:
    """How an engine draws tokens.

    ``temperature`` 0 is greedy.  ``top_k`` 0 and ``top_p`` 1 truncate nothing.  ``stop`` are strings that end a
    completion as soon as its text contains one.  ``max_tokens`` bounds the completion, end-of-sequence included.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 64
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"sampling.temperature must be >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"sampling.top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"sampling.top_k must be >= 0 (0 keeps all), got {self.top_k}")
        if self.max_tokens < 1:
            raise ValueError(f"sampling.max_tokens must be >= 1, got {self.max_tokens}")


@dataclass(frozen=True)
class Request:
    """``n`` completions of one prompt by one policy.

    ``seed`` fixes the draws of this request whatever shares its batch.  ``key`` orders requests under lockstep.
    """

    policy: str
    prompt_ids: tuple[int, ...]
    n: int
    sampling: Sampling
    seed: int
    key: tuple[int | str, ...] = ()
    deadline: float | None = None


@dataclass(frozen=True)
class Completion:
    """What an engine sampled; the token ids are never re-tokenised.

    ``token_ids`` and ``logprobs`` have one entry a sampled token, the end-of-sequence token included when it was
    sampled; ``logprobs`` are nats under the distribution actually sampled from (after temperature and truncation).
    ``text`` excludes special tokens.  What a remote policy said has no token ids: it is text alone.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish_reason: FinishReason
    policy: str
    version: int

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} tokens but {len(self.logprobs)} log-probs (policy {self.policy})")

    @property
    def text_only(self) -> bool:
        """Whether its tokens are unknown, so that nothing can be learnt from it; its prompt's are then, too."""
        return not self.token_ids


@dataclass
class Candidate:
    """A completion with its rewards.  ``reward`` is the mix ``alpha * team + local + overlong``, where ``overlong``, in
    [-1, 0], is the penalty of its length; credit sets ``advantage``.
    """

    completion: Completion
    local: float
    team: float
    reward: float
    continued: bool = False
    advantage: float | None = None
    info: Mapping[str, float] = field(default_factory=dict)
    overlong: float = 0.0


@dataclass
class Node:
    """The K candidates sampled from ONE prompt: a (task, agent, turn, parent)."""

    task_id: str
    agent: str
    turn: int
    prompt_ids: tuple[int, ...]
    candidates: list[Candidate]
    parent: int | None = None
    """Index, in the episode's nodes, of the node whose continued candidate led here."""
    state: Hashable | None = None
    """The world's ``state_key`` when the prompt was given."""
    path: tuple[int, ...] = ()
    """The joint actions that led here, each by its place among its siblings, where several may go on."""


@dataclass(frozen=True)
class Outcome:
    """How an episode, or one leaf of it, ended.

    ``turns`` counts turns used; ``team_return`` sums the team rewards of the messages that ended a turn.
    ``mixed_return`` is what episode-wise credit compares, see :mod:`.rollout.samplers.chain`; None in a tree, whose
    branches were chosen.
    """

    success: bool
    turns: int
    team_return: float
    mixed_return: float | None = None


@dataclass(frozen=True)
class JointAction:
    """An edge of the episode tree: one candidate per acting agent, and what came of it.

    ``members`` maps agent to (node index, candidate index).  At most one of ``child`` (the first of the next nodes) and
    ``outcome`` is set; neither where the sampler tried the joint action and went on from another.  ``reward`` is what
    the joint action itself earned, where the sampler compares joint actions; ``team`` is the team's part of it, without
    what its messages earned by themselves.
    """

    members: Mapping[str, tuple[int, int]]
    child: int | None = None
    outcome: Outcome | None = None
    reward: float | None = None
    team: float | None = None

    def __post_init__(self) -> None:
        if self.child is not None and self.outcome is not None:
            raise ValueError("a joint action leads either to a child node or to an outcome, not to both")


@dataclass
class Episode:
    """The tree of nodes and joint actions of one task, with an outcome per leaf.

    ``sample`` counts the episodes of one task where a sampler plays several.
    """

    task: Task
    nodes: list[Node]
    edges: list[JointAction]
    env_steps: int = 0
    sample: int = 0
    asides: list[tuple[int, Completion]] = field(default_factory=list)
    """(Tokens of the prompt, completion) of what was sampled to judge a candidate: not learnt from, but it costs."""
    chosen: bool = False
    """Whether branches went on because of their rewards: then the outcomes are better than the policies' own."""
    failure: str | None = None
    """Why the episode was lost, where the world failed: it has no nodes then."""

    @property
    def name(self) -> str:
        """What an error calls it: the task, and which of its episodes."""
        return f"{self.task.task_id}, sample {self.sample}"

    @property
    def outcomes(self) -> list[Outcome]:
        return [edge.outcome for edge in self.edges if edge.outcome is not None]

    @property
    def branches(self) -> dict[int, list[JointAction]]:
        """The joint actions tried at each node of the tree, by the index of its first agent's node; parents first."""
        found: dict[int, list[JointAction]] = {}
        for edge in self.edges:
            found.setdefault(min((node for node, _ in edge.members.values()), default=0), []).append(edge)
        return found

    @property
    def leaves(self) -> list[tuple[float, Outcome]]:
        """(Probability, outcome) of each end: at a node, one of the joint actions that went on is drawn evenly."""
        found, chances = [], {0: 1.0}
        for first, edges in self.branches.items():
            followed = [edge for edge in edges if edge.child is not None or edge.outcome is not None]
            for edge in followed:
                chance = chances[first] / len(followed)
                if edge.child is not None:
                    chances[edge.child] = chance
                elif edge.outcome is not None:
                    found.append((chance, edge.outcome))
        return found

    def candidates(self) -> Iterator[tuple[Node, Candidate]]:
        for node in self.nodes:
            for candidate in node.candidates:
                yield node, candidate


@dataclass(frozen=True)
class Sample:
    """One candidate as a learner sees it: what the router hands to a pool.

    ``weight`` is the candidate's share in its policy's loss; the weights of a policy's samples sum to 1.  ``agent``
    said it in ``turn``.
    """

    policy: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    behaviour_logprobs: tuple[float, ...]
    advantage: float
    weight: float
    agent: str = ""
    turn: int = 0


@dataclass  # not frozen: Fabric converts the fields under some precisions
class TokenBatch:
    """Candidates of a policy, packed: a row is a prompt and, after it, the completions of candidates that share it.

    The packed tokens: ``input_ids``, ``positions`` (of a token in its own prompt and completion) and ``segments`` (0
    the prompt, i > 0 the row's i-th completion, -1 padding), all (R, T) int64, right-padded.

    The candidates: ``rows`` (B,) int64, which row holds each; ``targets`` (B, C) int64, its completion's tokens;
    ``sources`` (B, C) int64, the position in its row after which each of them comes; ``mask`` (B, C) bool, False on
    padding; ``behaviour_logprobs`` (B, C) float32, nats, 0 where ``mask`` is False; ``advantages`` and ``weights`` (B,)
    float32; ``places``, agent and turn of each.
    """

    input_ids: Tensor
    positions: Tensor
    segments: Tensor
    rows: Tensor
    sources: Tensor
    targets: Tensor
    mask: Tensor
    behaviour_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    places: list[tuple[str, int]]

    def to(self, device: torch.device) -> TokenBatch:
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return TokenBatch(**moved)

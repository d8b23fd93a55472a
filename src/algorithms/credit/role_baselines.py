"""REINFORCE with a running baseline per role (SPIRAL's role-conditioned advantage estimation, arXiv 2506.24119)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from ...errors import check_fields
from ...experience import Episode, Node, Task, Weighting
from .base import CreditRule, Share
from .grpo import episode_return


@dataclass(kw_only=True, eq=False)
class RoleBaselines(CreditRule):
    """A = R_i - b_i on each message of agent i: R_i is the agent's own return, b_i a running mean of it, per world and
    place in the game (a seat) as published.

    R_i of an episode is ``alpha`` times the team's return plus the mean of the agent's own rewards (local, length);
    ``alpha`` is the sampler's.  After an iteration with n returns of the role, b_i <- ``decay``^n b_i + (1 -
    ``decay``^n) mean of R_i, from b_i = 0 at the start: ``decay`` per episode, as published, in whatever order the
    episodes came.  An iteration is judged by the baselines of earlier ones, which do not depend on its messages, so
    that the gradient is that of REINFORCE without a baseline, and unbiased.  ``by_turn`` has a baseline for each agent
    and turn.  One episode per task is enough.
    """

    one_prompt_per_group = False
    topologies = ("chain",)
    min_samples = 1

    decay: Annotated[float, Field(ge=0, lt=1), "in [0, 1)"] = 0.95
    by_turn: bool = False
    alpha: float = 1.0
    weight: Weighting = "episode"
    baselines: dict[str, float] = field(default_factory=dict, init=False)
    """By role."""

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.credit.")

    def key(self, node: Node) -> Hashable:
        return node.task_id

    def advantages(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def role(self, task: Task, node: Node) -> str:
        """The world, where there are several, the team's place in the game, where that has several, and the agent; and
        its turn where turns have baselines of their own."""
        turn = f"turn {node.turn}" if self.by_turn else ""
        return ", ".join(filter(None, (task.world, task.role, node.agent, turn)))

    def returns(self, episode: Episode) -> dict[str, float]:
        """R of each role that spoke."""
        episode_return(episode)  # raises where the episode is no chain
        own: dict[str, list[float]] = {}
        for node, candidate in episode.candidates():
            own.setdefault(node.agent, []).append(candidate.reward - self.alpha * candidate.team)
        team = self.alpha * episode.outcomes[0].team_return
        return {self.role(episode.task, node): team + fmean(own[node.agent]) for node in episode.nodes}

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        returns = self.returns(episode)
        for node, candidate in episode.candidates():
            role = self.role(episode.task, node)
            yield (node.task_id, role), Share(returns[role] - self.baselines.get(role, 0.0), (candidate,))

    def __call__(self, episodes: Sequence[Episode]) -> None:
        super().__call__(episodes)
        by_role: dict[str, list[float]] = {}
        for episode in episodes:
            for role, value in self.returns(episode).items():
                by_role.setdefault(role, []).append(value)
        for role, values in by_role.items():
            memory = self.decay ** len(values)
            self.baselines[role] = memory * self.baselines.get(role, 0.0) + (1 - memory) * fmean(values)

    def state_dict(self) -> dict[str, Any]:
        return {"baselines": dict(self.baselines)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if set(state) != {"baselines"} or not all(map(isfinite, state["baselines"].values())):
            raise ValueError(f"RoleBaselines has the state 'baselines', finite numbers by role; got {dict(state)}")
        self.baselines = dict(state["baselines"])

"""Self-play: a policy that speaks with the weights which another one has, or had before; and exact exploitability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ..envs.base import Strategy, TeamEnv, TwoSidedGame
from ..errors import Positive, check_fields
from ..experience import Sample
from ..rollout.chat_codec import ChatCodec
from ..rollout.engines.requests import derive

if TYPE_CHECKING:
    from ..models.pools.checkpoint import CheckpointFolder
    from ..models.pools.handles import PolicyHandle
    from ..models.pools.team import Team
    from ..rollout.policy_client import PolicyClient


@dataclass(frozen=True)
class PastSettings:
    """With the probability ``newest`` an iteration is played against the weights that the policy ``of`` has now; else
    against one of its checkpoints in the pool, which are those of iteration 0 and of each ``every`` iterations.

    ``half_life``: iterations after which a checkpoint is half as probable; None: all are equally so.
    """

    of: str
    every: Positive = 5
    newest: Annotated[float, Field(ge=0, le=1), "in [0, 1]"] = 0.5
    half_life: Positive | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def draw(self, iteration: int, rng: Random) -> int:
        """The iteration whose weights play after ``iteration`` iterations."""
        if rng.random() < self.newest:
            return iteration
        pool = range(0, iteration + 1, self.every)
        weights = [1.0 if self.half_life is None else 0.5 ** ((pool[-1] - each) / self.half_life) for each in pool]
        return rng.choices(pool, weights)[0]


class SelfPlay:
    """``past``: by the name of an opponent's policy, whose weights it has.  One draw per iteration: all samples of a
    group meet the same opponent.  Evaluations are played against the weights that the policy began with.

    Of a :class:`..envs.base.TwoSidedGame` it measures the strategy of the policy that learns, and the mean of those at
    the checkpoints of the pool, all equally, one drawn for a whole game.
    """

    def __init__(
        self, team: Team, past: Mapping[str, PastSettings], checkpoints: CheckpointFolder, world: TeamEnv, seed: int
    ) -> None:
        self.team, self.past, self.checkpoints, self.world, self.seed = team, past, checkpoints, world, seed
        self.every = min((each.every for each in past.values()), default=1)
        self.mean: Strategy = ()
        self.strategies, self.counted = 0, -1  # in it; the iteration of the last one

    async def draw(self, iteration: int) -> dict[str, float]:
        """Give each opponent the weights of this iteration; returns how many iterations old they are."""
        ages = {}
        for name, past in self.past.items():
            at = past.draw(iteration, Random(derive(self.seed, "opponent", name, iteration)))
            ages[f"opponents/{name}/age"] = float(iteration - at)
            await self._load(name, past.of, None if at == iteration else at)
        return ages

    async def first(self) -> None:
        """Give each opponent the weights that its policy began with."""
        for name, past in self.past.items():
            await self._load(name, past.of, 0)

    async def _load(self, name: str, of: str, at: int | None) -> None:
        from ..models.bases.loading import checkpoint_weights

        policy = self.team.policies[of]
        weights = await policy.weights() if at is None else checkpoint_weights(self.checkpoints.at(at) / of)
        await self.team.engines[name].load(name, weights, policy.version if at is None else at)

    async def measure(self, iteration: int) -> dict[str, float]:
        """The exploitability after ``iteration`` iterations; nothing in other worlds, or where the team does not learn.

        Counts the strategy into the mean where a checkpoint of the pool is due.
        """
        if not isinstance(self.world, TwoSidedGame):
            return {}
        agent = next(agent for agent in self.world.agents if agent not in self.world.opponents)
        client = self.team.training[agent]
        if (policy := self.team.policies.get(client.policy)) is None:
            return {}
        strategy = await strategy_of(self.world, agent, client, policy)
        if iteration % self.every == 0 and iteration > self.counted:
            self.strategies += 1
            self.mean = self.world.mixture(self.mean, strategy, 1 / self.strategies) if self.mean else strategy
            self.counted = iteration
        exploitability = self.world.exploitability
        return {
            "game/exploitability": exploitability(strategy),
            "game/exploitability_average": exploitability(self.mean or strategy),
        }

    def state_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the pool itself is the run's checkpoints."""
        mean = [list(row) for row in self.mean]
        return {"mean": mean, "strategies": self.strategies, "counted": self.counted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.mean, self.strategies, self.counted = state["mean"], state["strategies"], state["counted"]


async def strategy_of(world: TwoSidedGame, agent: str, client: PolicyClient, policy: PolicyHandle) -> Strategy:
    """The probability of each text of each decision of ``world``: of its tokens, and the end after them where there is
    room for it; other tokens that read the same count as other texts."""
    assert not isinstance(client.tokenizer, ChatCodec), "a policy that learns has a model"
    decisions, samples = world.decisions(), []
    for decision in decisions:
        prompt = client.encode(agent, "strategy", decision.messages)
        for text in decision.texts:
            ids = (*client.tokenizer(text, add_special_tokens=False).input_ids, client.tokenizer.eos_token_id)
            ids = ids[: client.sampling.max_tokens]
            samples.append(Sample(policy.name, prompt, ids, (0.0,) * len(ids), 0.0, 0.0, agent))
    probabilities = iter([exp(sum(logprobs)) for logprobs in await policy.logprobs(samples)])
    return [[next(probabilities) for _ in decision.texts] for decision in decisions]

"""The expected gradient of an algorithm, and the gradient of the team's expected return."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from random import Random

import torch
from torch import Tensor

from ..algorithms.credit.base import CreditRule
from ..algorithms.objectives import Objective
from ..envs.base import TeamEnv
from ..experience import Episode, Sample, Task
from ..models.learning.packing import mini_batches
from ..rollout.chat_codec import ChatCodec
from ..routing import Router
from .game import TEXTS, log_odds
from .outcomes import TOKENS, Draw

Gradient = dict[str, float]
"""By prompt, the derivative by the log-odds of the second action."""


@dataclass(frozen=True)
class Update:
    """What makes a gradient of episodes: Troupe's own credit, router, mini-batches and objective.

    ``team`` maps agents to policies; ``count`` mini-batches.  A policy's gradient is the mean over its mini-batches,
    all at the weights that sampled: no optimizer steps between them.  Every iteration begins with the present state of
    ``credit``.  ``values`` are a critic's, by prompt; ``value`` is that of every other prompt.
    """

    credit: CreditRule
    objective: Objective
    team: Mapping[str, str]
    count: int = 1
    values: Mapping[str, float] = field(default_factory=dict)
    value: float = 0.0

    def expected(self, by_task: Sequence[Sequence[Draw]]) -> Gradient:
        """The expected ascent direction of one iteration over several tasks, whose outcomes are independent."""
        router = self._router()
        samples: list[tuple[float, Sample]] = []
        for combination in product(*by_task):
            chance = prod(chance for chance, _ in combination)
            samples += [(chance, each) for each in self._samples(router, [e for _, es in combination for e in es])]
        return self._gradient(samples)

    def estimated(self, by_task: Sequence[Sequence[Draw]], *, copies: int, iterations: int, rng: Random) -> Gradient:
        """The mean ascent direction of so many drawn iterations, each of ``copies`` of every task: by Monte Carlo."""
        router = self._router()
        samples: list[tuple[float, Sample]] = []
        for _ in range(iterations):
            episodes = [
                _renamed(episode, number)
                for outcomes in by_task
                for number in range(copies)
                for episode in rng.choices(outcomes, [chance for chance, _ in outcomes])[0][1]
            ]
            samples += [(1 / iterations, sample) for sample in self._samples(router, episodes)]
        return self._gradient(samples)

    def _router(self) -> Router:
        return Router(self.team, tuple(self.team), tuple(dict.fromkeys(self.team.values())))

    def _samples(self, router: Router, episodes: list[Episode]) -> list[Sample]:
        state = copy.deepcopy(self.credit.state_dict())
        for node in (node for episode in episodes for node in episode.nodes):
            node.value = self.values.get(_text(node.prompt_ids), self.value)
        self.credit(episodes)
        self.credit.load_state_dict(state)
        routed = router.route(episodes, self.credit.key, self.credit.weight).values()
        by_tokens = self.objective.normalisation == "token_mean"
        parts = [part for groups in routed for part in self._parts(groups, by_tokens)]
        return [sample for part in parts for sample in part if sample.advantage]

    def _parts(self, groups: Sequence[Sequence[Sample]], by_tokens: bool) -> list[list[Sample]]:
        return mini_batches(groups, self.count, Random(0), by_tokens=by_tokens)

    def _gradient(self, samples: Sequence[tuple[float, Sample]]) -> Gradient:
        """The objective is linear in the weights, so that one call gives the expectation."""
        if not samples:  # no outcome differs from another
            return {}
        prompts = list(dict.fromkeys(sample.prompt_ids for _, sample in samples))
        places = torch.tensor([prompts.index(sample.prompt_ids) for _, sample in samples])
        texts = [_text(ids) for ids in prompts]
        odds = torch.tensor([log_odds(text) for text in texts], dtype=torch.float64, requires_grad=True)
        actions = torch.tensor([TOKENS.index(sample.token_ids) for _, sample in samples])
        first = torch.nn.functional.logsigmoid(torch.where(actions == 1, odds[places], -odds[places]))
        logprobs = torch.stack([first, torch.zeros_like(first)], dim=1)
        output = self.objective(
            logprobs,
            logprobs.detach(),
            logprobs.detach(),
            torch.tensor([sample.advantage for _, sample in samples], dtype=torch.float64),
            torch.tensor([chance * sample.weight for chance, sample in samples], dtype=torch.float64),
            torch.stack([torch.ones_like(actions), actions], dim=1).bool(),
        )
        output.loss.backward()
        assert odds.grad is not None
        return dict(zip(texts, (-odds.grad / self.count).tolist(), strict=True))


def _renamed(episode: Episode, number: int) -> Episode:
    """A copy of ``episode``, in a task of its own."""
    episode = copy.deepcopy(episode)
    episode.task = replace(episode.task, task_id=f"{episode.task.task_id} {number}")
    for node in episode.nodes:
        node.task_id = episode.task.task_id
    return episode


def _text(ids: tuple[int, ...]) -> str:
    return ChatCodec().messages(ids)[0]["content"]


def true_gradient(world: TeamEnv, task: Task) -> Gradient:
    """The gradient of the team's expected return in ``task``: over all episodes, no sampling."""
    odds: dict[str, Tensor] = {}
    env = world.fork()
    env.reset(task)
    asyncio.run(_expected_return(env, odds, {})).backward()
    return {prompt: float(parameter.grad) for prompt, parameter in odds.items() if parameter.grad is not None}


def true_values(world: TeamEnv, task: Task) -> dict[str, float]:
    """By prompt, the team's expected return from there on: what a perfect critic says."""
    values: dict[str, float] = {}
    env = world.fork()
    env.reset(task)
    asyncio.run(_expected_return(env, {}, values))
    return values


async def _expected_return(env: TeamEnv, odds: dict[str, Tensor], values: dict[str, float]) -> Tensor:
    """From the state of ``env`` on; the parameters and values of all prompts are added to ``odds`` and ``values``."""
    total = torch.zeros((), dtype=torch.float64)
    agents = env.next_agents()
    for actions in product((0, 1), repeat=len(agents)):
        chance = torch.ones((), dtype=torch.float64)
        for agent, action in zip(agents, actions, strict=True):
            prompt = env.observe(agent)[0]["content"]
            start = torch.tensor(log_odds(prompt), dtype=torch.float64, requires_grad=True)
            parameter = odds.setdefault(prompt, start)
            chance = chance * torch.sigmoid(parameter if action else -parameter)
        after = env.fork()
        result = await after.step({agent: TEXTS[a] for agent, a in zip(agents, actions, strict=True)})
        earned = result.team if result.done or after.turn > env.turn else 0.0
        total = total + chance * (earned + (0.0 if result.done else await _expected_return(after, odds, values)))
    values |= dict.fromkeys((env.observe(agent)[0]["content"] for agent in agents), total.item())
    return total

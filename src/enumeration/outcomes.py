"""All outcomes of a sampler: its episodes for every draw of its engine, with their probabilities."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import product
from math import factorial, log, prod

from torch import Tensor

from ..envs.base import TeamEnv
from ..experience import Completion, Episode, Request, Sampling, Task
from ..rollout.chat_codec import ChatCodec
from ..rollout.engines.base import Weightless
from ..rollout.policy_client import PolicyClient
from ..rollout.samplers.forest import ForestSampler
from ..rollout.samplers.sampler import Sampler, max_steps
from ..rollout.samplers.task_rollout import TaskRollout
from .game import TEXTS, probability

Draw = tuple[float, list[Episode]]
"""(Probability, episodes)."""

TOKENS = ((0,), (1, 2))
"""Of each action; the policies decide the first, and the second is certain."""


class ListingEngine(Weightless):
    """Draws the actions of ``script``, then the first ones that are left, which are appended to it.

    Two requests with one seed, prompt and row have one answer, as from any engine.  With ``exchangeable``, of the
    outcomes that differ only in the order of a node's candidates (joint actions, where agents act at once) one is
    drawn, and :attr:`probability` is that of all.
    """

    def __init__(self, script: list[int], *, exchangeable: bool) -> None:
        self.script, self.exchangeable = script, exchangeable
        self._answers: dict[Hashable, int] = {}
        self._rows: dict[Hashable, list[tuple[int, ...]]] = {}
        self._drawn = 1.0

    @property
    def probability(self) -> float:
        """Of the draws so far."""
        if not self.exchangeable:
            return self._drawn
        orders = (factorial(len(rows)) / prod(map(factorial, Counter(rows).values())) for rows in self._rows.values())
        return self._drawn * prod(orders)

    async def generate(self, request: Request) -> list[Completion]:
        (message,) = ChatCodec().messages(request.prompt_ids)
        task_id, turn, _, *place = request.key
        rows = self._rows.setdefault((task_id, turn, *place), [()] * request.n)  # of all agents of the node
        completions = []
        for row in range(request.n):
            # Rows in ascending order: a row may not draw less than one that is equal so far.
            least = rows[row - 1][-1] if self.exchangeable and row and rows[row - 1][:-1] == rows[row] else 0
            action = self._draw((request.seed, request.prompt_ids, row), message["content"], least)
            rows[row] = (*rows[row], action)
            ids, logprob = TOKENS[action], log(probability(message["content"], action))
            logprobs = (logprob, 0.0)[: len(ids)]
            completions.append(Completion(ids, logprobs, TEXTS[action], "stop", request.policy, 0))
        return completions

    def _draw(self, place: Hashable, prompt: str, least: int) -> int:
        if place not in self._answers:
            if len(self._answers) == len(self.script):
                self.script.append(least)
            self._answers[place] = self.script[len(self._answers)]
            self._drawn *= probability(prompt, self._answers[place])
        return self._answers[place]

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        return {}

    async def close(self) -> None:
        pass


class DrawnForest(ForestSampler):
    """``sampler`` with the draws ``steps``: of each tree, the steps at which it branches."""

    def __init__(self, sampler: ForestSampler, steps: Sequence[Sequence[int]]) -> None:
        super().__init__(k=sampler.k, expansions=sampler.expansions, branch_at=sampler.branch_at)
        self.steps = steps

    def draw(self, rollout: TaskRollout, tree: int, steps: int) -> list[int]:
        return list(self.steps[tree])


def outcomes(sampler: Sampler, world: TeamEnv, task: Task) -> list[Draw]:
    """Every outcome of ``sampler`` for ``task``; one for those that differ only in the order of samples.

    A sampler may draw nothing by itself but ties between equal candidates, and a forest the steps of its branches.
    """
    merged: dict[str, Draw] = {}
    samplers = _drawn(sampler, world)
    for each in samplers:
        for chance, episodes in asyncio.run(_all(each, world, task)):
            samples = [
                [
                    (node.prompt_ids, [(each.completion.text, each.team) for each in node.candidates], node.removed)
                    for node in episode.nodes
                ]
                for episode in episodes
            ]
            key = repr(sorted(samples))
            merged[key] = (chance / len(samplers) + (merged[key][0] if key in merged else 0.0), episodes)
    return list(merged.values())


def _drawn(sampler: Sampler, world: TeamEnv) -> Sequence[Sampler]:
    """``sampler`` with each of its own draws, which are equally likely."""
    if not isinstance(sampler, ForestSampler) or sampler.branch_at != "drawn":
        return [sampler]
    of_a_tree = list(product(range(1, len(max_steps(world))), repeat=sampler.expansions))
    return [DrawnForest(sampler, steps) for steps in product(of_a_tree, repeat=sampler.k)]


async def _all(sampler: Sampler, world: TeamEnv, task: Task) -> list[Draw]:
    script: list[int] = []
    found = []
    while True:
        # The main episode of a replay goes on with its first candidate, so its candidates differ.
        engine = ListingEngine(script, exchangeable=sampler.topology != "replay")
        clients = {agent: PolicyClient(agent, engine, ChatCodec(), 1000, Sampling()) for agent in world.agents}
        (episodes,) = await sampler.collect(world, [task], clients, seed=0)
        found.append((engine.probability, episodes))
        while script and script[-1] == len(TEXTS) - 1:
            script.pop()
        if not script:
            return found
        script[-1] += 1

"""Policies without a model: the demonstrator of the world speaks, or nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from torch import Tensor

from ..envs.base import ScriptedSkill, TeamEnv
from ..experience import Completion, Request, Task
from .engines.base import Weightless
from .playing import Answer, noting
from .policy_client import PolicyClient


class NoEngine(Weightless):
    """The engine of a policy without a model."""

    async def generate(self, request: Request) -> list[Completion]:
        """Raises ``ValueError``: the messages come from the world, see :class:`ScriptedClient`."""
        raise ValueError(f"policy '{request.policy}' is scripted: it answers no prompt")

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """Raises ``ValueError``: there are no weights."""
        raise ValueError(f"policy '{policy}' is scripted: it is never trained, so it takes no weights")

    async def close(self) -> None:
        """Nothing."""


@dataclass(frozen=True, kw_only=True)
class ScriptedClient(PolicyClient):
    """A policy whose messages are those of the world's demonstrator, drawn with the request's seed: text alone, so
    that nothing is trained on them."""

    skill: ScriptedSkill

    async def complete(
        self,
        env: TeamEnv,
        agent: str,
        task: Task,
        n: int,
        seed: int,
        key: tuple[int | str, ...],
        said: Sequence[Completion] = (),
    ) -> Answer:
        """See :meth:`.policy_client.PolicyClient.complete`."""
        prompt, texts = self.prompt(env, agent, task), [""] * n
        if self.skill != "silent":
            with noting(lambda: f"demonstration of {type(env).__name__} in turn {env.turn} for agent {agent}"):
                texts = [env.demonstration(agent, Random(f"{seed}/{row}"), skill=self.skill) for row in range(n)]
        return Answer.of(prompt, *(Completion((), (), text, "stop", self.policy, 0, scripted=True) for text in texts))

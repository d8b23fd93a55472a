"""A critic as a Ray actor, and its handle in the process of the run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device

from ...cluster.actors import ActorGroup, Answer, LostActorError, answered, settle
from ...cluster.execution import Execution
from ..learning.critic import Critic, ValueSample


class RayCritic:
    """The handle of the critic that ``build`` makes in an actor; see :class:`.handles.CriticHandle`.

    Raises what is raised there, :class:`...cluster.actors.ClusterError`, and :class:`...cluster.actors.LostActorError`
    where the actor has ended: what the critic has learnt since the last checkpoint is lost with it.
    """

    def __init__(self, name: str, build: Callable[[], Critic], execution: Execution) -> None:
        self.name = name
        self.group = ActorGroup(f"critic {name}", CriticActor, 1, execution.resources.critic, execution)
        with self.group.starting():
            self.context: int = self._ask("begin", build, os.getcwd(), torch.get_num_threads())

    def evaluate(self, inputs: Sequence[tuple[int, ...]]) -> list[float]:
        values: list[float] = self._ask("call", "evaluate", inputs)
        return values

    def update(self, samples: Sequence[ValueSample]) -> dict[str, float]:
        metrics: dict[str, float] = self._ask("call", "update", samples)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """On the CPU."""
        state: dict[str, Any] = self._ask("call", "state_dict")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._ask("call", "load_state_dict", state)

    async def close(self) -> None:
        """May be called twice."""
        self.group.end()

    def _ask(self, method: str, *arguments: Any) -> Any:
        if not self.group.actors:
            raise LostActorError(f"critic '{self.name}' has ended")
        try:
            answer, failed = self.group.ray.get(getattr(self.group.actors[0], method).remote(*arguments))
        except self.group.lost as lost:
            self.group.end()
            raise LostActorError(f"critic '{self.name}': its process, or its node, has ended") from lost
        if failed is not None:
            raise failed
        return answer


class CriticActor:
    """The process of a critic."""

    def begin(self, build: Callable[[], Critic], folder: str, threads: int) -> Answer:
        """Build the critic; the tokens of its context."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for the run
        settle(folder, threads)

        def work() -> int:
            self.critic = build()
            return self.critic.context

        return answered(work, RuntimeError)

    def call(self, method: str, *arguments: Any) -> Answer:
        """What a method of :class:`..learning.critic.Critic` returns, tensors on the CPU."""

        def work() -> Any:
            result = getattr(self.critic, method)(*arguments)
            return move_data_to_device(result, torch.device("cpu")) if isinstance(result, Mapping) else result

        return answered(work, RuntimeError)

"""What the loop, the engines and the checkpoints know of pools, policies and critics, in this process or in others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from ...experience import Sample

if TYPE_CHECKING:
    from ..learning.critic import ValueSample
    from ..learning.learner import Groups

TRAINING = "training.pt"
"""The file of a checkpoint with what learning has changed beside weights."""


class PoolHandle(Protocol):
    """One backbone with its policies."""

    async def update(self, batches: Mapping[str, Groups], by_agent: bool = False) -> dict[str, dict[str, float]]:
        """One iteration's update of every policy in ``batches``, from its groups of samples; metrics by policy.

        ``by_agent``: with each agent's share of the gradient, where several agents speak with a policy.
        """

    async def close(self) -> None:
        """End what the pool has started.  May be called twice."""


class PolicyHandle(Protocol):
    """One policy of a pool.  Its methods wait while the pool updates."""

    name: str

    @property
    def pool(self) -> PoolHandle: ...

    @property
    def version(self) -> int:
        """How many updates it has had; completions and engines carry it."""

    @property
    def sharded(self) -> bool:
        """Whether each process of the run has a part of it alone, so that all of them must call its methods alike."""

    async def weights(self) -> Mapping[str, Tensor]:
        """The present weights by checkpoint name (of an adapter by peft's)."""

    async def reference_logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """Of each sample's tokens, nats: of the weights at the run's start."""

    async def logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """Of each sample's tokens, nats: of the present weights, at the sampling temperature."""

    def save(self, folder: Path) -> None:
        """Write the weights as libraries read them, and beside them everything else that the next update depends on."""

    def restore(self, folder: Path) -> None:
        """Bring the policy to where :meth:`save` wrote ``folder``.

        Raises ``ValueError``, ``KeyError`` or ``OSError`` for files that do not fit.
        """


class CriticHandle(Protocol):
    """One critic."""

    context: int
    """Tokens that an input may have."""

    def evaluate(self, inputs: Sequence[tuple[int, ...]]) -> list[float]:
        """The value of each input, all of them different, by the present weights."""

    def update(self, samples: Sequence[ValueSample]) -> dict[str, float]:
        """Take all steps of one iteration towards the targets of ``samples``; returns metrics."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next value and the next update depend on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.  Raises ``ValueError`` for a state that does not fit."""

    async def close(self) -> None:
        """End what the critic has started.  May be called twice."""

"""The settings of updates, critics and adapters, and the schedules of policies, which learn from some iteration on, or
in turns with others (iterated best response).

Nothing here imports torch until a model is given, so that settings are checked at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import AboveZero, Natural, Positive, Share, check_fields

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """``mini_batches`` optimizer steps per epoch, ``epochs`` passes over an iteration's samples, gradients accumulated
    over micro-batches of at most ``max_tokens`` tokens and clipped to the norm ``clip_norm``.  ``live_groups_only``
    leaves groups without any advantage out of the loss's mean.

    Of the prompts whose candidates no step learns from (their advantage is 0), this ``mismatch_share`` is scored for
    the mismatch statistics, which would otherwise cover only samples with an advantage.  The prompts are drawn anew at
    each update, for each agent and turn at least one.  Scoring costs a forward pass.  1: all; 0: none.
    """

    mini_batches: Positive = 1
    epochs: Positive = 1
    max_tokens: Positive = 16_384
    clip_norm: AboveZero = 1.0
    live_groups_only: bool = False
    mismatch_share: Share = 0.25

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.update.")


@dataclass(frozen=True, kw_only=True)
class CriticSettings:
    """``epochs`` passes over an iteration's returns, ``mini_batches`` optimizer steps in each, gradients accumulated
    over micro-batches of at most ``max_tokens`` tokens and clipped to the norm ``clip_norm``.
    """

    mini_batches: Positive = 1
    epochs: Positive = 1
    max_tokens: Positive = 16_384
    clip_norm: AboveZero = 1.0

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.critic.")


ALL_LINEAR = "all-linear"
"""Every linear layer but the output layer."""


class AdapterError(ValueError):
    """An adapter that cannot be put on its base; the message names the key."""


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """A policy's adapter: W x becomes W x + (``alpha`` / ``r``) B A x in every layer of ``targets``.

    ``targets`` are names of linear layers (``q_proj``), or ``all-linear``.
    """

    r: Positive
    alpha: AboveZero
    targets: str | Sequence[str] = ALL_LINEAR

    def __post_init__(self) -> None:
        check_fields(self, error=AdapterError)
        if not self.targets or (isinstance(self.targets, str) and self.targets != ALL_LINEAR):
            raise AdapterError(f"targets must be {ALL_LINEAR} or a list of linear layers, got {self.targets!r}")

    @property
    def scale(self) -> float:
        return self.alpha / self.r

    def layers(self, model: PreTrainedModel) -> list[str]:
        """``targets`` as names.

        Raises :class:`AdapterError` naming one that is no linear layer of ``model``, and those that there are.
        """
        head = model.get_output_embeddings()
        linear = [name for name, m in _linear(model) if m is not head]
        known = list(dict.fromkeys(name.rpartition(".")[2] for name in linear))
        if not known:
            raise AdapterError(f"targets: {type(model).__name__} has no linear layers within")
        if isinstance(self.targets, str):
            return known
        for target in self.targets:
            if not any(name == target or name.endswith(f".{target}") for name in linear):
                listed = ", ".join([*known, ALL_LINEAR])
                raise AdapterError(f"targets: {type(model).__name__} has no linear layer '{target}'. Known: {listed}")
        return list(self.targets)

    def parameters(self, model: PreTrainedModel) -> int:
        """How many numbers an adapter on ``model`` has.  Raises as :meth:`layers`."""
        ends = tuple(f".{name}" for name in self.layers(model))
        linear = [m for name, m in _linear(model) if f".{name}".endswith(ends)]
        return sum(self.r * (layer.in_features + layer.out_features) for layer in linear)


def named_layers(policy: str, settings: LoraSettings, model: PreTrainedModel) -> list[str]:
    """:meth:`LoraSettings.layers` of a policy's adapter.  Raises :class:`AdapterError` naming the key."""
    try:
        return settings.layers(model)
    except AdapterError as error:
        raise AdapterError(f"policies.{policy}.lora.{error}") from error


def _linear(model: PreTrainedModel) -> Iterator[tuple[str, nn.Linear]]:
    from torch import nn

    return ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear))


@dataclass(frozen=True, kw_only=True)
class Alternation:
    """A policy's place in a rotation: for ``every`` iterations the policies of one turn learn and all others rest, then
    those of the next turn.

    Turns count from 0.  Several policies may share one.
    """

    every: Positive
    turn: Natural

    def __post_init__(self) -> None:
        check_fields(self, "alternate.")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A policy does not learn in the first ``freeze_until`` iterations, and with ``alternate`` only in its turns.

    ``turns`` is the number of turns in the team's rotation.
    """

    freeze_until: Natural = 0
    alternate: Alternation | None = None
    turns: int = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def learns(self, iteration: int) -> bool:
        """Whether the policy learns in the iteration after ``iteration`` others."""
        if iteration < self.freeze_until:
            return False
        return self.alternate is None or iteration // self.alternate.every % self.turns == self.alternate.turn

    def ever(self, iterations: int) -> bool:
        """Whether the policy learns in any of the first ``iterations`` iterations."""
        return any(self.learns(iteration) for iteration in range(iterations))


def count_turns(alternations: Mapping[str, Alternation]) -> int:
    """The number of turns in the rotation of these policies.

    Raises ``ValueError``, naming the policy, where they disagree about ``every``, or no policy has some turn.
    """
    if not alternations:
        return 1
    first = next(iter(alternations))
    for name, alternation in alternations.items():
        if alternation.every != alternations[first].every:
            raise ValueError(
                f"policies.{name}.schedule.alternate.every={alternation.every}: policy '{first}' has "
                f"{alternations[first].every}, and all policies of a rotation have the same"
            )
    count = 1 + max(alternation.turn for alternation in alternations.values())
    for free in set(range(count)) - {alternation.turn for alternation in alternations.values()}:
        raise ValueError(f"policies.*.schedule.alternate.turn: no policy has turn {free} of {count}, counted from 0")
    return count

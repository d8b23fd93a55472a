"""One optimizer for several policies, and each policy's view of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from .policy import MakeOptimizer


def joined(policies: Mapping[str, tuple[MakeOptimizer, Sequence[Tensor]]]) -> Optimizer:
    """One optimizer with a parameter group a policy, in their order, each with the settings of its own.

    Raises ``ValueError`` for policies whose optimizers are of different classes, or have several groups.
    """
    apart = {name: make(parameters) for name, (make, parameters) in policies.items()}
    kinds = {name: type(optimizer) for name, optimizer in apart.items()}
    first, *others = kinds
    for name in others:
        if kinds[name] is not kinds[first]:
            raise ValueError(
                f"policies.{name}.optimizer._target_: policies that share a base share one optimizer, and this is "
                f"{kinds[name].__name__}, that of policy '{first}' is {kinds[first].__name__}"
            )
    return policies[first][0]([group for optimizer in apart.values() for group in optimizer.param_groups])


class GroupView(Optimizer):
    """Group ``index`` of ``optimizer`` as an optimizer of its own, for a scheduler that moves its rate alone.

    The group is the same dictionary in both.  States are read and written there; only ``optimizer`` steps.
    """

    def __init__(self, optimizer: Optimizer, index: int) -> None:
        self._whole, self._group = optimizer, optimizer.param_groups[index]
        super().__init__([self._group], {})

    @property
    def parameters(self) -> list[Tensor]:
        parameters: list[Tensor] = self._group["params"]
        return parameters

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is ever evaluated here
        """Nothing: the whole has stepped.  Tells a scheduler so, which wants to come after a step."""

    def state_dict(self) -> dict[str, Any]:
        """As an optimizer of this group alone would write it."""
        self.state.clear()
        self.state.update({p: self._whole.state[p] for p in self.parameters if p in self._whole.state})
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ``ValueError`` for the state of another group."""
        super().load_state_dict(state_dict)
        for parameter in self.parameters:
            self._whole.state.pop(parameter, None)
        self._whole.state.update(self.state)
        self._group.update({key: value for key, value in self.param_groups[0].items() if key != "params"})
        self.param_groups = [self._group]

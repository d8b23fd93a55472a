"""One completion by hand, and what an objective makes of it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from troupe.algorithms.objectives import Objective

Case = dict[str, Tensor]


def one_completion(now: list[float], *, advantage: float, **others: list[float]) -> Case:
    """One completion; every list holds probabilities (or ratios), a token each, and those not given are 1."""
    ones = [1.0] * len(now)
    names = ("old_logprobs", "behaviour_logprobs", "reference_logprobs")
    given = {name: torch.tensor([others.get(name.split("_")[0], ones)], dtype=torch.float64).log() for name in names}
    return given | {
        "logprobs": torch.tensor([now], dtype=torch.float64).log().requires_grad_(),
        "advantages": torch.tensor([advantage], dtype=torch.float64),
        "weights": torch.ones(1, dtype=torch.float64),
        "mask": torch.ones(1, len(now), dtype=torch.bool),
    }


def outcome(objective: Objective, given: Case) -> tuple[float, list[float], int]:
    """(loss, d loss / d logprobs, clipped)."""
    out = objective(**given)
    (gradient,) = torch.autograd.grad(out.loss, given["logprobs"])
    return out.loss.item(), gradient[0].tolist(), int(out.clipped)


def near(*numbers: float) -> Any:
    return pytest.approx(list(numbers), abs=1e-12)

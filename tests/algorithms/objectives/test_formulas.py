"""All objectives under all combinations of options, against the formulas written token by token."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from troupe.algorithms.objectives import Cispo, ClippedObjective, Objective, PolicyGradient

from .conftest import Case

CLIPS: list[tuple[type[Objective], dict[str, Any]]] = [
    (ClippedObjective, {}),
    (ClippedObjective, {"clip": 0.1, "clip_high": 0.4, "dual_clip": 2.0}),
    (ClippedObjective, {"clip": 0.1, "ratio": "sequence", "dual_clip": 1.3}),
    (Cispo, {"ratio_cap": 1.5, "ratio_floor": 0.5}),
    (PolicyGradient, {}),
]
NORMALISATIONS: list[dict[str, Any]] = [
    {},
    {"normalisation": "constant", "length": 9},
    {"normalisation": "sequence_sum"},
]
CORRECTIONS: list[dict[str, Any]] = [{}] + [
    {"importance_cap": 1.6, "importance_floor": 0.6, "importance_level": level, "importance_mode": mode}
    for level, mode in product(("token", "sequence"), ("truncate", "mask"))
]
REGULARISERS: list[dict[str, Any]] = [{}, {"entropy": 0.3}] + [
    {"kl": 0.2, "kl_estimator": k, "kl_in": place} for k, place in [("k2", "loss"), ("k3", "loss"), ("k1", "reward")]
]


def random_case(dtype: torch.dtype, seed: int) -> Case:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([3, 1, 0, 5])
    names = ("logprobs", "old_logprobs", "behaviour_logprobs", "reference_logprobs", "entropies")
    drawn = {name: torch.randn(4, 6, generator=generator, dtype=torch.float64) / 2 - 2 for name in names}
    drawn |= {name: torch.rand(4, generator=generator, dtype=torch.float64) - 0.5 for name in ("advantages", "weights")}
    return {name: value.to(dtype) for name, value in drawn.items()} | {"mask": torch.arange(6) < lengths[:, None]}


def plain(objective: Any, given: Case) -> Tensor:
    """The loss token by token, one tensor element at a time."""
    o, total = objective, torch.zeros((), dtype=torch.float64)
    for b, length in enumerate(given["mask"].sum(dim=1).tolist()):
        now, old, behaviour, reference, entropy = (given[n][b].double() for n in list(given)[:5])
        advantage, weight = given["advantages"][b].item(), given["weights"][b].item()
        drift = [(old[t] - behaviour[t]).item() for t in range(length)]
        divisor = {"constant": o.length, "sequence_sum": 1}.get(o.normalisation, length)
        for t in range(length):
            a = advantage
            if o.kl and o.kl_in == "reward":
                a -= o.kl * sum((old[u] - reference[u]).item() for u in range(t, length))
            ratio = (now[t] - old[t]).exp()
            if isinstance(o, ClippedObjective):
                if o.ratio == "sequence":
                    ratio = (sum(now[u] - old[u] for u in range(length)) / length).exp()
                high = o.clip if o.clip_high is None else o.clip_high
                bounded = min(max(ratio, 1 - o.clip), 1 + high)  # Python's, of scalars
                gain = min(ratio * a, bounded * a)
                if o.dual_clip and a < 0:
                    gain = max(gain, torch.tensor(o.dual_clip * a, dtype=torch.float64))
            elif isinstance(o, Cispo):
                gain = min(max(ratio.item(), o.ratio_floor), o.ratio_cap) * a * now[t]
            else:
                gain = a * now[t]
            if o.importance_cap:
                c = math.exp(drift[t] if o.importance_level == "token" else sum(drift))
                inside = o.importance_floor <= c <= o.importance_cap
                gain = gain * (
                    min(max(c, o.importance_floor), o.importance_cap) if o.importance_mode == "truncate" else c * inside
                )
            if o.kl and o.kl_in == "loss":
                d = now[t] - reference[t]
                gain = gain - o.kl * (d**2 / 2 if o.kl_estimator == "k2" else (-d).exp() - 1 + d)
            total = total - weight / divisor * (gain + o.entropy * entropy[t])
    return total


@pytest.mark.parametrize("regulariser", REGULARISERS, ids=str)
@pytest.mark.parametrize("kind", CLIPS, ids=lambda kind: f"{kind[0].__name__} {kind[1]}")
def test_against_the_formulas_written_plainly(
    kind: tuple[type[Objective], dict[str, Any]], regulariser: dict[str, Any]
) -> None:
    for seed, (normalisation, correction) in enumerate(product(NORMALISATIONS, CORRECTIONS)):
        objective = kind[0](**kind[1] | normalisation | correction | regulariser)
        for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
            given = random_case(dtype, seed)
            leaves = [given["logprobs"].requires_grad_(), given["entropies"].requires_grad_()]
            loss, expected = objective(**given).loss, plain(objective, given)
            assert loss.item() == pytest.approx(expected.item(), rel=tolerance, abs=tolerance)
            found = torch.autograd.grad(loss, leaves, materialize_grads=True)
            right = torch.autograd.grad(expected, leaves, materialize_grads=True)
            for one, other in zip(found, right, strict=True):
                assert (one - other).norm() <= tolerance * max(other.norm(), 1e-3)


@pytest.mark.parametrize("kind", CLIPS, ids=lambda kind: f"{kind[0].__name__} {kind[1]}")
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_nothing_outside_the_mask_matters(kind: tuple[type[Objective], dict[str, Any]], junk: float) -> None:
    for options in REGULARISERS[1:]:
        objective = kind[0](**kind[1] | CORRECTIONS[3] | options)
        clean, dirty = random_case(torch.float32, 0), random_case(torch.float32, 0)
        gradients = []
        for given in (clean, dirty):
            if given is dirty:
                for name in list(given)[:5]:
                    given[name][~given["mask"]] = junk
            given["logprobs"].requires_grad_()
            gradients.append(torch.autograd.grad(objective(**given).loss, given["logprobs"])[0])
        assert torch.equal(*gradients)
        assert all(torch.equal(v, vars(objective(**dirty))[k]) for k, v in vars(objective(**clean)).items())

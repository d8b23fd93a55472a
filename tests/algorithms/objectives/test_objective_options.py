"""Each option of the objectives by hand, and all of them against the formulas written token by token."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from troupe.algorithms.objectives import Cispo, ClippedObjective, Objective, PolicyGradient

Case = dict[str, Tensor]


def case(now: list[float], *, advantage: float, **others: list[float]) -> Case:
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


# ---- by hand --------------------------------------------------------------------------------------------------------


def test_dapos_upper_range() -> None:
    # A = 2: ratio 1.25 lies within 1.28, 1.5 does not: (1.25 + 1.28) / 2 * 2; -A / 2 * ratio where not clipped.
    loss, gradient, clipped = outcome(ClippedObjective(clip=0.2, clip_high=0.28), case([1.25, 1.5], advantage=2))
    assert (loss, clipped) == (pytest.approx(-2.53, abs=1e-12), 1)
    assert gradient == near(-1.25, 0)


def test_dual_clip() -> None:
    # A = -1, ratios 2 and 5: min gives -2 and -5; with c = 3 the second is -3, without gradient.
    given = case([2, 5], advantage=-1)
    loss, gradient, clipped = outcome(ClippedObjective(dual_clip=3), given)
    assert (loss, clipped) == (pytest.approx(2.5, abs=1e-12), 1)
    assert gradient == near(1, 0)
    assert outcome(ClippedObjective(), given)[0] == pytest.approx(3.5, abs=1e-12)
    # A positive advantage is none of its business.
    assert outcome(ClippedObjective(dual_clip=3), case([2, 5], advantage=1))[0] == pytest.approx(-1.2, abs=1e-12)


def test_gspo() -> None:
    # Ratios 4 and 1: s = sqrt(4) = 2.  Clip 0.5 and A = 1: clipped, 1.5.  A = -1: 2, and ds/dlogprob = s / 2 a token.
    objective = ClippedObjective(clip=0.5, ratio="sequence")
    loss, gradient, clipped = outcome(objective, case([4, 1], advantage=1))
    assert (loss, gradient, clipped) == (pytest.approx(-1.5, abs=1e-12), near(0, 0), 2)
    loss, gradient, clipped = outcome(objective, case([4, 1], advantage=-1))
    assert (loss, gradient, clipped) == (pytest.approx(2, abs=1e-12), near(1, 1), 0)


def test_cispo() -> None:
    # Weights min(8, 5) = 5 and 0.5, A = 2, mean of two: loss -(5 ln 8 + 0.5 ln 0.5); every token keeps a gradient.
    loss, gradient, clipped = outcome(Cispo(), case([8, 0.5], advantage=2))
    assert loss == pytest.approx(-(5 * math.log(8) + 0.5 * math.log(0.5)), abs=1e-12)
    assert (gradient, clipped) == (near(-5, -0.5), 1)
    assert outcome(Cispo(ratio_floor=0.75), case([0.5], advantage=2))[1:] == (near(-1.5), 1)


def test_the_plain_gradient_of_a_sequence() -> None:
    # -A (ln 0.5 + ln 0.25), and -A a token; neither old nor behaviour log-probabilities matter.
    objective = PolicyGradient(normalisation="sequence_sum")
    given = case([0.5, 0.25], advantage=2, old=[0.1, 0.9], behaviour=[0.3, 0.4])
    assert outcome(objective, given) == (pytest.approx(2 * math.log(8), abs=1e-12), near(-2, -2), 0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, -2.0),
        ({"normalisation": "sequence_sum"}, -8.0),
        ({"normalisation": "constant", "length": 10}, -0.8),
        ({"normalisation": "token_mean"}, -2.0),  # the packing has put the lengths into the weights
    ],
)
def test_normalisations(settings: dict[str, Any], expected: float) -> None:
    # Four tokens of ratio 1, A = 2.
    assert outcome(ClippedObjective(**settings), case([1] * 4, advantage=2))[0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        ({"importance_cap": 2.0}, (2, 0.25)),
        ({"importance_cap": 2.0, "importance_floor": 0.5}, (2, 0.5)),
        ({"importance_cap": 2.0, "importance_mode": "mask"}, (0, 0.25)),
        ({"importance_cap": 4.0, "importance_mode": "mask"}, (4, 0.25)),
        ({"importance_cap": 4.0, "importance_floor": 0.5, "importance_mode": "mask"}, (4, 0)),
        ({"importance_cap": 0.5, "importance_level": "sequence"}, (0.5, 0.5)),
        ({"importance_cap": 3.0, "importance_level": "sequence"}, (1, 1)),
        ({"importance_cap": 0.5, "importance_level": "sequence", "importance_mode": "mask"}, (0, 0)),
    ],
)
def test_truncated_importance_sampling(settings: dict[str, Any], factors: tuple[float, float]) -> None:
    # Learner over behaviour: 4 and 0.25, of the sequence 1; A = 2, ratio 1.
    given = case([0.4, 0.1], advantage=2, old=[0.4, 0.1], behaviour=[0.1, 0.4])
    loss, gradient, _ = outcome(ClippedObjective(**settings), given)
    assert loss == pytest.approx(-sum(factors), abs=1e-12)
    assert gradient == near(*(-factor for factor in factors))


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        # d = ln 2: k2 = d^2 / 2, slope d; k3 = 1/2 - 1 + ln 2, slope 1 - 1/2.
        ("k2", math.log(2) ** 2 / 2, math.log(2)),
        ("k3", math.log(2) - 0.5, 0.5),
    ],
)
def test_kl_in_the_loss(estimator: Any, value: float, slope: float) -> None:
    given = case([0.5], advantage=0, old=[0.5], reference=[0.25])
    loss, gradient, _ = outcome(ClippedObjective(kl=0.1, kl_estimator=estimator), given)
    assert loss == pytest.approx(0.1 * value, abs=1e-12)
    assert gradient == near(0.1 * slope)
    assert ClippedObjective(kl=0.1)(**given).reference_kl_nats.item() == pytest.approx(math.log(2) - 0.5, abs=1e-12)


def test_kl_in_the_reward() -> None:
    # k1 at the update's start: ln 2, -ln 2, ln 4; what is still to come: ln 4, ln 2, ln 4.  A = 1, kl = 0.5:
    # advantages 1 - ln 2, 1 - ln(2) / 2, 1 - ln 2; ratio 1; gradient -A_t / 3.
    start = [0.5, 0.25, 0.8]
    given = case(start, advantage=1, old=start, reference=[0.25, 0.5, 0.2])
    loss, gradient, _ = outcome(ClippedObjective(kl=0.5, kl_estimator="k1", kl_in="reward"), given)
    expected = [1 - math.log(2), 1 - math.log(2) / 2, 1 - math.log(2)]
    assert loss == pytest.approx(-sum(expected) / 3, abs=1e-12)
    assert gradient == near(*(-a / 3 for a in expected))


def test_an_entropy_bonus() -> None:
    given = case([1, 1], advantage=2)
    out = ClippedObjective(entropy=0.1)(**given, entropies=torch.tensor([[0.5, 1.5]], dtype=torch.float64))
    assert out.loss.item() == pytest.approx(-2 - 0.1, abs=1e-12)
    assert out.entropy_nats.item() == pytest.approx(2, abs=1e-12)


# ---- all of them ----------------------------------------------------------------------------------------------------

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


# ---- settings -------------------------------------------------------------------------------------------------------

WRONG: list[tuple[type[Objective], dict[str, Any], str]] = [
    (ClippedObjective, {"clip_high": 0.0}, "clip_high"),
    (ClippedObjective, {"ratio": "word"}, "ratio must be token or sequence, got word"),
    (ClippedObjective, {"dual_clip": 0.5}, "dual_clip"),
    (ClippedObjective, {"normalisation": "mean"}, "normalisation must be one of sequence_mean"),
    (ClippedObjective, {"importance_mode": "clip"}, "importance_mode"),
    (ClippedObjective, {"importance_floor": 0.5}, "importance_floor=0.5 must lie below"),
    (ClippedObjective, {"kl": 0.1, "kl_estimator": "k1"}, "kl_estimator=k1 with kl_in=loss"),
    (PolicyGradient, {"kl": -0.1}, "kl must be >= 0"),
    (PolicyGradient, {"entropy": -0.1}, "entropy must be >= 0"),
    (Cispo, {"ratio_cap": 0.5}, "ratio_cap"),
]


@pytest.mark.parametrize(("kind", "settings", "message"), WRONG, ids=lambda x: str(x)[:40])
def test_settings_out_of_range_are_named(kind: type[Objective], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.objective\W.*{message}|algorithm\.objective\.{message}"):
        kind(**settings)


def test_the_constant_length_is_the_policys() -> None:
    objective = ClippedObjective(normalisation="constant")
    assert objective.sized(40).length == 40
    assert ClippedObjective(normalisation="constant", length=7).sized(40).length == 7
    assert ClippedObjective().sized(40) == ClippedObjective()
    with pytest.raises(ValueError, match=r"algorithm\.objective\.length is 0"):
        objective(**case([1], advantage=1))


def test_which_objectives_need_every_sample() -> None:
    assert not ClippedObjective(importance_cap=2).every_sample
    assert ClippedObjective(entropy=0.1).every_sample and PolicyGradient(kl=0.1, kl_in="reward").every_sample

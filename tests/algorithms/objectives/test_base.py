"""The objectives and every option that objectives share, by hand; what padding may hold; settings."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from troupe.algorithms.objectives import Cispo, ClippedObjective, Objective, PolicyGradient

from .conftest import near, one_completion, outcome

NAMES = ("logprobs", "old_logprobs", "behaviour_logprobs")
REST = ("advantages", "weights", "mask")
UNSEEN = [math.nan, math.inf, -math.inf, 1e30]


def logs(*rows: list[float]) -> Tensor:
    """Logarithms of the given ratios, (B, T) float64."""
    return torch.tensor(rows, dtype=torch.float64).log()


def random_case(dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
    """Five ragged rows, one of them without any token, with ratios far beyond the clip range on both sides."""
    generator = torch.Generator().manual_seed(seed)
    shape = (5, 7)
    lengths, starts = [3, 1, 0, 5, 4], [2, 6, 3, 1, 0]
    columns = torch.arange(shape[1])
    mask = torch.stack([(columns >= s) & (columns < s + n) for s, n in zip(starts, lengths, strict=True)])
    draws = {name: torch.randn(shape, generator=generator, dtype=torch.float64) - 2 for name in NAMES}
    draws |= {
        "advantages": torch.randn(shape[0], generator=generator, dtype=torch.float64),
        "weights": torch.rand(shape[0], generator=generator, dtype=torch.float64),
    }
    return {name: value.to(dtype) for name, value in draws.items()} | {"mask": mask}


def plain(case: dict[str, Tensor], clip: float, cap: float) -> tuple[float, list[list[float]], int]:
    """(loss, d loss / d logprobs, clipped tokens) token by token, in Python floats."""
    now, old, behaviour, advantages, weights, mask = (case[name].tolist() for name in (*NAMES, *REST))
    loss, clipped = 0.0, 0
    gradient = [[0.0] * len(row) for row in now]
    for b, row in enumerate(mask):
        tokens = [t for t, is_answer in enumerate(row) if is_answer]
        for t in tokens:
            ratio, advantage = math.exp(now[b][t] - old[b][t]), advantages[b]
            share = weights[b] / len(tokens)
            if cap:
                share *= min(math.exp(old[b][t] - behaviour[b][t]), cap)
            too_far = ratio > 1 + clip if advantage > 0 else ratio < 1 - clip
            if too_far:
                loss -= share * advantage * (1 + clip if advantage > 0 else 1 - clip)
                clipped += 1
            else:
                loss -= share * advantage * ratio
                gradient[b][t] = -share * advantage * ratio
    return loss, gradient, clipped


def test_by_hand() -> None:
    # Row 0, A = 1, two tokens: ratio 1.5 is clipped to 1.2; ratio 0.5 stays (min(0.5, 0.8)).  Mean 0.85.
    # Row 1, A = -2, three tokens: ratio 1.5 stays (min(-3, -2.4)); ratio 0.5 is clipped to 0.8 (min(-1, -1.6));
    #   ratio 1.1 stays, -2.2.  Mean (-3 - 1.6 - 2.2) / 3 = -6.8 / 3.
    # loss = -(0.25 * 0.85 + 0.75 * -6.8 / 3) = -0.2125 + 1.7 = 1.4875
    now = logs([1, 1.5, 0.5], [1.5, 0.5, 1.1]).requires_grad_()
    mask = torch.tensor([[False, True, True], [True, True, True]])
    zeros = torch.zeros(2, 3, dtype=torch.float64)
    out = ClippedObjective(clip=0.2)(now, zeros, zeros, torch.tensor([1.0, -2.0]), torch.tensor([0.25, 0.75]), mask)
    assert out.loss.item() == pytest.approx(1.4875, abs=1e-12)
    assert (out.clipped.item(), out.tokens.item()) == (2, 5)
    # d ratio / d logprob = ratio.  Row 0: -0.25 / 2 * 1 * 0.5 = -0.0625.  Row 1: -0.75 / 3 * -2 = 0.5 times the ratio.
    out.loss.backward()
    assert now.grad is not None
    assert now.grad.tolist() == [
        pytest.approx([0, 0, -0.0625], abs=1e-12),
        pytest.approx([0.75, 0, 0.55], abs=1e-12),
    ]
    # k3 over the five tokens: ratio - 1 - log ratio
    kl = sum(r - 1 - math.log(r) for r in (1.5, 0.5, 1.5, 0.5, 1.1))
    assert out.approx_kl_nats.item() == pytest.approx(kl, abs=1e-12)
    assert out.behaviour_kl_nats.item() == 0


def test_importance_by_hand() -> None:
    # Learner at the update's start over behaviour: 3 (capped at 2) and 0.5; the learner has not moved since.
    # loss = -(1 / 2) * (2 * A + 0.5 * A) = -1.25 A with A = 4; the gradient of each token is -A / 2 times its factor.
    old = logs([3, 0.5])
    now = old.clone().requires_grad_()
    mask = torch.ones(1, 2, dtype=torch.bool)
    arguments = (old, torch.zeros(1, 2, dtype=torch.float64), torch.tensor([4.0]), torch.tensor([1.0]), mask)
    out = ClippedObjective(importance_cap=2.0)(now, *arguments)
    assert out.loss.item() == pytest.approx(-5, abs=1e-12)
    out.loss.backward()
    assert now.grad is not None
    assert now.grad.tolist() == [pytest.approx([-4, -1], abs=1e-12)]
    assert out.behaviour_kl_nats.item() == pytest.approx(3 - 1 - math.log(3) + 0.5 - 1 - math.log(0.5), abs=1e-12)
    # Without the correction the behaviour policy does not matter.
    assert ClippedObjective()(now, *arguments).loss.item() == pytest.approx(-4, abs=1e-12)


@pytest.mark.parametrize("cap", [0.0, 1.5])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_against_the_formula_written_plainly(dtype: torch.dtype, tolerance: float, cap: float) -> None:
    case = random_case(dtype)
    case["logprobs"].requires_grad_()
    out = ClippedObjective(clip=0.2, importance_cap=cap)(**case)
    out.loss.backward()
    loss, gradient, clipped = plain(case, 0.2, cap)
    assert clipped >= 3  # the case exercises clipping
    assert out.loss.item() == pytest.approx(loss, rel=tolerance)
    assert out.clipped.item() == clipped
    expected, found = torch.tensor(gradient, dtype=torch.float64), case["logprobs"].grad
    assert found is not None
    assert (found - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("junk", UNSEEN, ids=str)
@pytest.mark.parametrize("cap", [0.0, 1.5])
def test_nothing_outside_the_mask_matters(junk: float, cap: float) -> None:
    objective = ClippedObjective(importance_cap=cap)
    clean, dirty = random_case(torch.float32), random_case(torch.float32)
    for name in NAMES:
        dirty[name][~dirty["mask"]] = junk
    for case in (clean, dirty):
        case["logprobs"].requires_grad_()
    one, other = objective(**clean), objective(**dirty)
    for name, expected in vars(one).items():
        assert torch.equal(vars(other)[name], expected), name
    one.loss.backward()
    other.loss.backward()
    assert torch.equal(dirty["logprobs"].grad, clean["logprobs"].grad)
    assert not dirty["logprobs"].grad[~dirty["mask"]].any()


def test_the_importance_correction_is_a_constant() -> None:
    case = random_case(torch.float64)
    for name in ("logprobs", "behaviour_logprobs"):
        case[name].requires_grad_()
    ClippedObjective(importance_cap=1.5)(**case).loss.backward()
    assert case["logprobs"].grad is not None
    assert case["behaviour_logprobs"].grad is None


# ---- options of the clipped surrogate --------------------------------------------------------------------------------


def test_dapos_upper_range() -> None:
    # A = 2: ratio 1.25 lies within 1.28, 1.5 does not: (1.25 + 1.28) / 2 * 2; -A / 2 * ratio where not clipped.
    loss, gradient, clipped = outcome(
        ClippedObjective(clip=0.2, clip_high=0.28), one_completion([1.25, 1.5], advantage=2)
    )
    assert (loss, clipped) == (pytest.approx(-2.53, abs=1e-12), 1)
    assert gradient == near(-1.25, 0)


def test_dual_clip() -> None:
    # A = -1, ratios 2 and 5: min gives -2 and -5; with c = 3 the second is -3, without gradient.
    given = one_completion([2, 5], advantage=-1)
    loss, gradient, clipped = outcome(ClippedObjective(dual_clip=3), given)
    assert (loss, clipped) == (pytest.approx(2.5, abs=1e-12), 1)
    assert gradient == near(1, 0)
    assert outcome(ClippedObjective(), given)[0] == pytest.approx(3.5, abs=1e-12)
    # A positive advantage is none of its business.
    assert outcome(ClippedObjective(dual_clip=3), one_completion([2, 5], advantage=1))[0] == pytest.approx(
        -1.2, abs=1e-12
    )


def test_gspo() -> None:
    # Ratios 4 and 1: s = sqrt(4) = 2.  Clip 0.5 and A = 1: clipped, 1.5.  A = -1: 2, and ds/dlogprob = s / 2 a token.
    objective = ClippedObjective(clip=0.5, ratio="sequence")
    loss, gradient, clipped = outcome(objective, one_completion([4, 1], advantage=1))
    assert (loss, gradient, clipped) == (pytest.approx(-1.5, abs=1e-12), near(0, 0), 2)
    loss, gradient, clipped = outcome(objective, one_completion([4, 1], advantage=-1))
    assert (loss, gradient, clipped) == (pytest.approx(2, abs=1e-12), near(1, 1), 0)


# ---- options of every objective --------------------------------------------------------------------------------------


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
    assert outcome(ClippedObjective(**settings), one_completion([1] * 4, advantage=2))[0] == pytest.approx(
        expected, abs=1e-12
    )


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
    given = one_completion([0.4, 0.1], advantage=2, old=[0.4, 0.1], behaviour=[0.1, 0.4])
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
    given = one_completion([0.5], advantage=0, old=[0.5], reference=[0.25])
    loss, gradient, _ = outcome(ClippedObjective(kl=0.1, kl_estimator=estimator), given)
    assert loss == pytest.approx(0.1 * value, abs=1e-12)
    assert gradient == near(0.1 * slope)
    assert ClippedObjective(kl=0.1)(**given).reference_kl_nats.item() == pytest.approx(math.log(2) - 0.5, abs=1e-12)


def test_kl_in_the_reward() -> None:
    # k1 at the update's start: ln 2, -ln 2, ln 4; what is still to come: ln 4, ln 2, ln 4.  A = 1, kl = 0.5:
    # advantages 1 - ln 2, 1 - ln(2) / 2, 1 - ln 2; ratio 1; gradient -A_t / 3.
    start = [0.5, 0.25, 0.8]
    given = one_completion(start, advantage=1, old=start, reference=[0.25, 0.5, 0.2])
    loss, gradient, _ = outcome(ClippedObjective(kl=0.5, kl_estimator="k1", kl_in="reward"), given)
    expected = [1 - math.log(2), 1 - math.log(2) / 2, 1 - math.log(2)]
    assert loss == pytest.approx(-sum(expected) / 3, abs=1e-12)
    assert gradient == near(*(-a / 3 for a in expected))


def test_an_entropy_bonus() -> None:
    given = one_completion([1, 1], advantage=2)
    out = ClippedObjective(entropy=0.1)(**given, entropies=torch.tensor([[0.5, 1.5]], dtype=torch.float64))
    assert out.loss.item() == pytest.approx(-2 - 0.1, abs=1e-12)
    assert out.entropy_nats.item() == pytest.approx(2, abs=1e-12)


# ---- settings --------------------------------------------------------------------------------------------------------

WRONG: list[tuple[type[Objective], dict[str, Any], str]] = [
    (ClippedObjective, {"clip_high": 0.0}, "clip_high"),
    (ClippedObjective, {"ratio": "word"}, "ratio must be token or sequence, got 'word'"),
    (ClippedObjective, {"dual_clip": 0.5}, "dual_clip"),
    (ClippedObjective, {"normalisation": "mean"}, "normalisation must be one of sequence_mean"),
    (ClippedObjective, {"importance_mode": "clip"}, "importance_mode"),
    (ClippedObjective, {"importance_floor": 0.5}, "importance_floor=0.5 must lie below"),
    (ClippedObjective, {"importance_mode": "mask"}, "importance_mode=mask and .* no effect with importance_cap=0"),
    (ClippedObjective, {"importance_level": "sequence"}, "importance_level=sequence have no effect"),
    (ClippedObjective, {"length": 7}, "length=7 has no effect with normalisation=sequence_mean"),
    (ClippedObjective, {"kl": 0.1, "kl_estimator": "k1"}, "kl_estimator=k1 with kl_in=loss"),
    (ClippedObjective, {"kl": 0.1, "kl_in": "credit"}, "kl_in=credit is for kl_estimator=k1, got k3"),
    (PolicyGradient, {"kl": -0.1}, "kl must be at least 0"),
    (PolicyGradient, {"entropy": -0.1}, "entropy must be at least 0"),
    (Cispo, {"ratio_cap": 0.5}, "ratio_cap"),
]


@pytest.mark.parametrize(("kind", "settings", "message"), WRONG, ids=lambda x: str(x)[:40])
def test_settings_out_of_range_are_named(kind: type[Objective], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.objective\W.*{message}|algorithm\.objective\.{message}"):
        kind(**settings)


@pytest.mark.parametrize(("setting", "value"), [("clip", 0.0), ("clip", 1.0), ("clip", -0.2), ("importance_cap", -1.0)])
def test_clip_and_cap_out_of_range_are_named(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.objective\.{setting}"):
        ClippedObjective(**{setting: value})


def test_the_constant_length_is_the_policys() -> None:
    objective = ClippedObjective(normalisation="constant")
    assert objective.sized(40).length == 40
    assert ClippedObjective(normalisation="constant", length=7).sized(40).length == 7
    assert ClippedObjective().sized(40) == ClippedObjective()
    with pytest.raises(ValueError, match=r"algorithm\.objective\.length is 0"):
        objective(**one_completion([1], advantage=1))


def test_which_objectives_need_every_sample() -> None:
    assert not ClippedObjective(importance_cap=2).every_sample
    assert ClippedObjective(entropy=0.1).every_sample and PolicyGradient(kl=0.1, kl_in="reward").every_sample


def test_the_plain_gradient_of_a_sequence() -> None:
    # -A (ln 0.5 + ln 0.25), and -A a token; neither old nor behaviour log-probabilities matter.
    objective = PolicyGradient(normalisation="sequence_sum")
    given = one_completion([0.5, 0.25], advantage=2, old=[0.1, 0.9], behaviour=[0.3, 0.4])
    assert outcome(objective, given) == (pytest.approx(2 * math.log(8), abs=1e-12), near(-2, -2), 0)


def test_cispo() -> None:
    # Weights min(8, 5) = 5 and 0.5, A = 2, mean of two: loss -(5 ln 8 + 0.5 ln 0.5); every token keeps a gradient.
    loss, gradient, clipped = outcome(Cispo(), one_completion([8, 0.5], advantage=2))
    assert loss == pytest.approx(-(5 * math.log(8) + 0.5 * math.log(0.5)), abs=1e-12)
    assert (gradient, clipped) == (near(-5, -0.5), 1)
    assert outcome(Cispo(ratio_floor=0.75), one_completion([0.5], advantage=2))[1:] == (near(-1.5), 1)

"""The objectives against the loss that TRL publishes (``GRPOTrainer._compute_loss``), on the same tensors.

``make test-trl`` installs TRL and runs this.
"""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from troupe.algorithms.objectives import Cispo, ClippedObjective, Objective

pytestmark = [pytest.mark.trl, pytest.mark.filterwarnings("ignore")]

Case = dict[str, Tensor]
Loss = Callable[..., Tensor]
LENGTHS = [6, 1, 4, 9]
MAXIMUM = 12  # tokens a completion


@pytest.fixture(scope="module")
def trl_loss() -> Loss:
    """``trl_loss(case, loss_type=..., ...)``: TRL's own code; its trainer is a namespace with the settings it reads."""
    from trl import GRPOTrainer

    def compute(case: Case, correction: Tensor | None = None, **settings: Any) -> Tensor:
        one_process = SimpleNamespace(
            gather=lambda x: x, reduce=lambda x, reduction: x, num_processes=1, sync_gradients=True
        )
        defaults: dict[str, Any] = {
            "epsilon_low": 0.2,
            "epsilon_high": 0.2,
            "importance_sampling_level": "token",
            "beta": 0.0,
            "entropy_coef": 0.0,
            "delta": None,
        }
        chosen = defaults | settings
        trainer = SimpleNamespace(
            **{key: value for key, value in chosen.items() if key != "delta"},
            _get_per_token_logps_and_entropies=lambda *_, **__: (case["logprobs"], case["entropies"], None),
            _entropy_bonus_enabled=chosen["entropy_coef"] > 0,
            _metrics={"train": _Metrics()},
            accelerator=one_process,
            args=SimpleNamespace(delta=chosen["delta"], use_bias_correction_kl=False, steps_per_generation=1),
            aux_loss_enabled=False,
            compute_loss_context_manager=nullcontext,
            current_gradient_accumulation_steps=1,
            max_completion_length=MAXIMUM,
            model=SimpleNamespace(training=True),
            off_policy_mask_threshold=None,
            top_entropy_quantile=1.0,
            use_adaptive_entropy=False,
            use_vllm=correction is not None,
            vllm_importance_sampling_correction=True,
        )
        ids = torch.zeros(case["mask"].shape, dtype=torch.long)
        inputs = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": torch.ones_like(ids[:, :1]),
            "completion_ids": ids,
            "completion_mask": case["mask"].long(),
            "advantages": case["advantages"],
            "old_per_token_logps": case["old_logprobs"],
            "ref_per_token_logps": case["reference_logprobs"],
            "num_items_in_batch": case["mask"].sum(),
            "importance_sampling_ratio": correction,
        }
        return GRPOTrainer._compute_loss(trainer, None, inputs)

    return compute


class _Metrics(dict[str, list[float]]):
    def __missing__(self, key: str) -> list[float]:
        return self.setdefault(key, [])


def drawn(seed: int) -> Case:
    """Four completions whose ratios lie on both sides of every clip; what stands outside the mask is 0."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    names = ("logprobs", "old_logprobs", "behaviour_logprobs", "reference_logprobs")
    case = {n: -2 + 0.4 * torch.randn(mask.shape, generator=generator, dtype=torch.float64) for n in names}
    case["entropies"] = torch.rand(mask.shape, generator=generator, dtype=torch.float64)
    case = {name: torch.where(mask, value, 0.0) for name, value in case.items()}
    case |= {"advantages": torch.tensor([1.5, -1.0, 0.5, -2.0], dtype=torch.float64), "mask": mask}
    for name in ("logprobs", "entropies"):
        case[name].requires_grad_()
    return case


def weights(normalisation: str) -> Tensor:
    """As the packing gives them."""
    lengths = torch.tensor(LENGTHS, dtype=torch.float64)
    return lengths / lengths.sum() if normalisation == "token_mean" else torch.full_like(lengths, 1 / len(LENGTHS))


def compare(
    objective: Objective, theirs: Loss, correct: Callable[[Case], Tensor] | None = None, **settings: Any
) -> None:
    for seed in range(5):
        case = drawn(seed)
        leaves = [case["logprobs"], case["entropies"]]
        ours = objective(**case, weights=weights(objective.normalisation))
        loss = theirs(case, None if correct is None else correct(case), **settings)
        assert ours.loss.item() == pytest.approx(loss.item(), rel=1e-12)
        pairs = zip(*(torch.autograd.grad(x, leaves, materialize_grads=True) for x in (ours.loss, loss)), strict=True)
        for found, expected in pairs:
            assert (found - expected).norm() <= 1e-12 * (1 + expected.norm())
        assert torch.autograd.grad(theirs(case, **settings), leaves[0])[0].norm() > 0.01


OBJECTIVES: dict[str, tuple[Objective, dict[str, Any]]] = {
    "grpo": (ClippedObjective(), {"loss_type": "grpo"}),
    "grpo with k3": (ClippedObjective(kl=0.1), {"loss_type": "grpo", "beta": 0.1}),
    "dr. grpo": (ClippedObjective(normalisation="constant", length=MAXIMUM), {"loss_type": "dr_grpo"}),
    "dapo": (ClippedObjective(clip_high=0.28, normalisation="token_mean"), {"loss_type": "dapo", "epsilon_high": 0.28}),
    "dapo with an entropy bonus": (
        ClippedObjective(clip_high=0.28, normalisation="token_mean", entropy=0.05),
        {"loss_type": "dapo", "epsilon_high": 0.28, "entropy_coef": 0.05},
    ),
    "dual clip": (ClippedObjective(dual_clip=1.5), {"loss_type": "grpo", "delta": 1.5}),
    "gspo": (
        ClippedObjective(ratio="sequence", clip=0.03, clip_high=0.04),
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon_low": 0.03,
            "epsilon_high": 0.04,
        },
    ),
    "cispo": (Cispo(ratio_cap=1.2, normalisation="token_mean"), {"loss_type": "cispo", "epsilon_high": 1.2}),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_loss_and_its_gradient_are_trls(trl_loss: Loss, name: str) -> None:
    objective, settings = OBJECTIVES[name]
    compare(objective, trl_loss, **settings)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_truncated_importance_sampling_is_trls(trl_loss: Loss, level: Any, mode: Any) -> None:
    """TRL computes the factor where it generates; here as it does there, for ``vllm_importance_sampling_mode``."""

    def factor(case: Case) -> Tensor:
        difference = (case["old_logprobs"] - case["behaviour_logprobs"]) * case["mask"]
        ratio = torch.exp(difference.sum(dim=-1, keepdim=True) if level == "sequence" else difference)
        if mode == "truncate":
            return torch.clamp(ratio, min=0.7, max=1.4)
        return ratio.masked_fill((ratio < 0.7) | (ratio > 1.4), value=0.0)

    settings = {"importance_cap": 1.4, "importance_floor": 0.7, "importance_level": level, "importance_mode": mode}
    compare(ClippedObjective(kl=0.1, **settings), trl_loss, factor, loss_type="grpo", beta=0.1)
    compare(Cispo(normalisation="token_mean", **settings), trl_loss, factor, loss_type="cispo", epsilon_high=5.0)

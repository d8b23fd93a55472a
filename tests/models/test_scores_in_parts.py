"""Log-probabilities over a large vocabulary, in parts: the plain ones, with less in memory at a time."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from troupe.experience import Sample, TokenBatch
from troupe.models import policy
from troupe.models.loading import SHIPPED, base_path, load_tokenizer
from troupe.models.packing import pack, rows_of
from troupe.models.policy import token_scores

from .conftest import TEMPERATURE, Groups, Tiny

Scores = tuple[Tensor, Tensor | None]
VOCABULARY = 24
DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])


def scored(model: Qwen3ForCausalLM, batch: TokenBatch, entropy: bool) -> tuple[Scores, Tensor]:
    """The scores, and the gradient of a sum that weighs each token by its place."""
    found = token_scores(model, batch, TEMPERATURE, entropy=entropy)
    weights = 1 + torch.arange(batch.mask.numel()).reshape(batch.mask.shape) / batch.mask.numel()
    total = sum(((part * weights).sum() for part in found if part is not None), torch.zeros(()))
    total.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found, gradient


@DTYPES
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("most", [1, 5 * VOCABULARY])
def test_parts_are_the_whole(
    tiny: Tiny,
    groups: Callable[..., Groups],
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    tolerance: float,
    entropy: bool,
    most: int,
) -> None:
    """A token at a time, and five."""
    model = tiny(dtype)
    assert model.config.vocab_size == VOCABULARY
    batch = pack(rows_of(sample for group in groups() for sample in group), pad_id=0)
    (logprobs, entropies), gradient = scored(model, batch, entropy)
    monkeypatch.setattr(policy, "MOST_LOGITS", most)
    (in_parts, entropies_in_parts), gradient_in_parts = scored(model, batch, entropy)
    assert in_parts.dtype == logprobs.dtype and not in_parts[~batch.mask].any()
    assert (in_parts - logprobs).abs().max() <= tolerance * logprobs.abs().max()
    assert (gradient_in_parts - gradient).norm() <= tolerance * gradient.norm()
    if entropy:
        assert entropies is not None and entropies_in_parts is not None
        assert (entropies_in_parts - entropies).abs().max() <= tolerance * entropies.max()
    else:
        assert entropies_in_parts is None


def test_an_empty_completion_disturbs_nothing(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = Sample("p", (5, 6, 7), (8, 1), (-1.0, -1.0), 1.0, 0.5)
    silent = Sample("p", (5, 6, 7), (), (), 1.0, 0.5)
    model = tiny(torch.float64)
    (alone, _) = token_scores(model, pack([[spoken]], pad_id=0), 1.0, entropy=False)
    monkeypatch.setattr(policy, "MOST_LOGITS", 1)
    (both, _) = token_scores(model, pack([[spoken, silent]], pad_id=0), 1.0, entropy=False)
    assert torch.allclose(both[0], alone[0], atol=1e-12)
    assert not both[1].any()


def test_what_is_known_of_no_other_architecture_is_not_assumed(
    tiny: Tiny, groups: Callable[..., Groups], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some scale or cap what the head gives."""
    monkeypatch.setattr(policy, "MOST_LOGITS", 1)
    model, batch = tiny(), pack(rows_of(groups()[0]), pad_id=0)
    model.config.model_type = "gemma2"
    called: list[Any] = []
    monkeypatch.setattr(policy, "_scores_in_parts", lambda *given: called.append(given))
    token_scores(model, batch, 1.0, entropy=False)
    assert not called


class Largest(TorchDispatchMode):
    """The most numbers in a tensor that was made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return made


@pytest.mark.parametrize("entropy", [False, True])
def test_no_tensor_holds_more_logits_than_may_be(monkeypatch: pytest.MonkeyPatch, entropy: bool) -> None:
    """200 tokens and 3,000 words: 600,000 logits, of which 60,000 may be there at a time; the head has 24,000."""
    config = Qwen3Config(vocab_size=3000, hidden_size=8, intermediate_size=8, num_hidden_layers=1, head_dim=4)
    config.num_attention_heads = config.num_key_value_heads = 2
    model, rng = Qwen3ForCausalLM(config), Random(0)
    answers = [tuple(rng.randrange(3000) for _ in range(50)) for _ in range(4)]
    samples = [Sample("p", (1,) * 100, answer, (-1.0,) * 50, 1.0, 0.25) for answer in answers]
    batch = pack([samples], pad_id=0)
    monkeypatch.setattr(policy, "MOST_LOGITS", 60_000)
    kept: list[int] = []
    pack_hook: Callable[[Tensor], Tensor] = lambda tensor: kept.append(tensor.numel()) or tensor  # type: ignore[func-returns-value]  # noqa: E731
    with Largest() as largest, torch.autograd.graph.saved_tensors_hooks(pack_hook, lambda tensor: tensor):
        logprobs, entropies = token_scores(model, batch, 1.0, entropy=entropy)
        forward = max(kept)
        (logprobs.sum() if entropies is None else logprobs.sum() + entropies.sum()).backward()
    mask = batch.input_ids.shape[1] ** 2
    assert forward <= max(mask, 24_000)  # the logits are not among what the backward pass waits for
    assert largest.numbers <= max(mask, 60_000)


@pytest.mark.parametrize("base", SHIPPED)
def test_runs_at_laptop_scale_are_computed_at_once(composed: Callable[..., DictConfig], base: str) -> None:
    """So that they are, to the bit, what they were."""
    world = {"laptop": "sokoban", "laptop_couplet": "couplet", "laptop_code": "code", "laptop_math": "math"}[base]
    cfg = composed(f"experiment={world}_specialized", "run_dir=nowhere")
    tokens = max(cfg.algorithm["update"].max_tokens, 512)  # or one row
    assert tokens * len(load_tokenizer(str(base_path(base)))) <= policy.MOST_LOGITS

"""Which models the torch engine runs, decided at start and not in the middle of a run.

The engine takes part of a model's forward pass into its own hands, and a model that works differently would decode on,
quietly wrong.  So known differences are refused by name, and every other model is tested: it decodes two short prompts
as the engine will, and must get the logits of its own forward pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import GenerationMixin, PreTrainedModel, PreTrainedTokenizerBase

from ..base import UnsupportedModelError
from .forward import Forward, FusedForward, ModuleForward
from .shared_prompt import ATTENTION, SharedPromptCache

# How far the engine's logits may be from the model's own, as a share of the largest: rounding only.
_TOLERANCE, _HALF_TOLERANCE = 1e-3, 5e-2


def prepare(policy: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Forward:
    """Set ``model`` up for the engine (evaluation mode, no gradients, shared-prompt attention); its forward pass.

    Refused with :class:`UnsupportedModelError`: encoder-decoders and models that generate no text; sliding or chunked
    windows and recurrent or linear-attention layers; rotary embeddings that change with the length; attention that is
    soft-capped or otherwise foreign; quantised weights; weights on several devices; a tokenizer larger than the
    vocabulary; models whose code does not go through ``transformers``' attention interface; and whatever else makes a
    short decoding differ from a plain forward pass.
    """
    check_architecture(policy, model, tokenizer)
    model.eval().requires_grad_(False)
    try:
        return _compared(model)
    except Exception as error:  # whatever a foreign architecture raises, it is the reason
        raise UnsupportedModelError(
            f"policy '{policy}': the torch engine does not run {type(model).__name__}: {error}"
        ) from error


def check_architecture(policy: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Raise :class:`UnsupportedModelError` where the model's configuration and code decide it; nothing is computed, so
    that the model may be on torch's meta device.
    """
    reasons = [reason for reason, applies in _conditions(model, tokenizer).items() if applies]
    if reasons:
        raise UnsupportedModelError(
            f"policy '{policy}': the torch engine does not run {type(model).__name__}: {'; '.join(reasons)}"
        )


def _conditions(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> dict[str, bool]:
    """Reason against a model -> whether it applies."""
    config = model.config
    layers = sorted(set(getattr(config, "layer_types", None) or ["full_attention"]))
    window = None if getattr(config, "layer_types", None) else getattr(config, "sliding_window", None)
    devices = sorted({str(parameter.device) for parameter in model.parameters()})
    softcap = getattr(config, "attn_logit_softcapping", None)
    words = 0 if tokenizer is None else len(tokenizer)
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
    return {
        "it is an encoder-decoder": bool(config.is_encoder_decoder),
        "it is no causal language model": not isinstance(model, GenerationMixin) or not model.can_generate(),
        f"it has layers of type {', '.join(layers)}, not full_attention only": layers != ["full_attention"],
        f"its attention has a sliding window of {window} tokens": window is not None,
        f"its attention is soft-capped at {softcap}": softcap is not None,
        f"its rotary embedding ({rope}) changes with the length": rope in ("dynamic", "longrope"),
        "it keeps a recurrent state, not keys and values": bool(getattr(model, "_is_stateful", False)),
        "its weights are quantised": getattr(model, "hf_quantizer", None) is not None,
        f"its weights lie on several devices ({', '.join(devices)})": len(devices) > 1,
        "its code does not use the attention interface of transformers": not model._can_set_attn_implementation(),
        "its forward pass has no logits_to_keep": "logits_to_keep" not in inspect.signature(model.forward).parameters,
        f"its vocabulary ({config.vocab_size}) is smaller than the tokenizer's ({words})": words > config.vocab_size,
    }


@torch.no_grad()
def _compared(model: PreTrainedModel) -> Forward:
    """Plug the attention in; raises unless two short prompts, decoded by two rows each, get the model's own logits.

    The prompts differ in length, and a prompt's rows in their tokens, so that padding, groups, ranks and the ring of
    own columns all take part.
    """
    if model.config._attn_implementation == ATTENTION:
        model.set_attn_implementation("sdpa")
    generator = torch.Generator().manual_seed(0)
    sequences = torch.randint(model.config.vocab_size, (4, 7), generator=generator).to(model.device)
    sequences[1, :3], sequences[3, :5] = sequences[0, :3], sequences[2, :5]
    lengths = [3, 3, 5, 5]  # of the prompts; two tokens follow
    plain = [model(input_ids=row[None, : n + 2]).logits[0, n - 1 :] for row, n in zip(sequences, lengths, strict=True)]
    model.set_attn_implementation(ATTENTION)
    if model.config._attn_implementation != ATTENTION:
        raise UnsupportedModelError("its attention cannot be replaced")
    forward: Forward = FusedForward(model) if FusedForward.applies(model) else ModuleForward(model)
    for expected, logits in zip(plain, _decoded(forward, sequences, lengths), strict=True):
        scale, error = expected.abs().max(), (expected - logits).abs().max()
        if not error <= (_HALF_TOLERANCE if expected.itemsize < 4 else _TOLERANCE) * scale:
            raise UnsupportedModelError(
                f"decoded logits differ by {error:.2g} from a plain forward pass (of magnitude {scale:.2g})"
            )
    return forward


def _decoded(forward: Forward, sequences: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """(3, V) logits per row, after its prompt and each of two more tokens, by prefill and decoding steps."""
    device, cache = sequences.device, SharedPromptCache()
    cache.add_groups([3, 5], [2, 2], 2)
    with cache.prefilling([0, 1], [0, 1]):
        logits = forward.prefill(cache, sequences[[0, 2], :5], torch.tensor([2, 4], device=device))
    steps = [logits[[0, 0, 1, 1]]]
    for offset in range(2):
        positions = torch.tensor(lengths, device=device) + offset
        tokens = sequences.gather(1, positions[:, None])[:, 0]
        with cache.decoding(device):
            steps.append(forward.step(cache, tokens, positions))
    return list(torch.stack(steps, 1))

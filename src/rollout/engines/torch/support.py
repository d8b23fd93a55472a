"""Which models the torch engine runs, decided at start and not in the middle of a run.

The engine takes part of a model's forward pass into its own hands, and a model that works differently would decode on,
quietly wrong.  So known differences are refused by name, and every other model is tested: it decodes two short prompts
as the engine will, and must get what its own forward pass gets, up to its rounding (:mod:`..plain_pass`).

The dtype that an engine computes in, where it is not that of its models.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationMixin, PreTrainedModel, PreTrainedTokenizerBase

from ....kernels.products import multiplies_bfloat16
from ..base import UnsupportedModelError
from ..plain_pass import (
    BFLOAT16_ROUNDING,
    FACTOR,
    ROUNDING,
    WIDER,
    at_least_stored,
    computing_in,
    highest_precision,
    passages,
    rms,
)
from .checks import DTYPES
from .forward import Forward, FusedForward, ModuleForward
from .shared_prompt import ATTENTION, SharedPromptCache


def prepare(
    policy: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Sequence[int]] = ()
) -> tuple[Forward, dict[str, float]]:
    """Set ``model`` up for the engine (evaluation mode, no gradients, shared-prompt attention); its forward pass, and
    how it rounds: :data:`..plain_pass.ROUNDING` and :data:`..plain_pass.BFLOAT16_ROUNDING`.

    It is tested on ``prompts``, the world's, or a page of text where there are none: 76 tokens at most, by a plain
    pass in float64, one in float32, one in bfloat16 and one in the model's own dtype where that is another, and by
    decoding in float32 and in its own dtype.

    Refused with :class:`UnsupportedModelError`: encoder-decoders and models that generate no text; sliding or chunked
    windows and recurrent or linear-attention layers; rotary embeddings that change with the length; attention that is
    soft-capped or otherwise foreign; quantised weights; weights on several devices; a tokenizer larger than the
    vocabulary; models whose code does not go through ``transformers``' attention interface; and whatever else makes a
    short decoding differ from a plain forward pass.
    """
    check_architecture(policy, model, tokenizer)
    model.eval().requires_grad_(False)
    try:
        with highest_precision():
            return _compared(model, passages(tokenizer, prompts, model.config.vocab_size, _lengths(model)))
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


PROMPT, REST = 15, 2
"""Tokens of the longer prompt, and of what follows each in a row."""


def _lengths(model: PreTrainedModel) -> list[int]:
    """Of two passages: prompts of different lengths, each with what follows it in its two rows."""
    longer = max(2, min(PROMPT, getattr(model.config, "max_position_embeddings", PROMPT + REST) - REST))
    return [length + 2 * REST for length in (longer * 2 // 3, longer)]


@torch.no_grad()
def _compared(model: PreTrainedModel, texts: Sequence[Sequence[int]]) -> tuple[Forward, dict[str, float]]:
    """Plug the attention in; raises unless two prompts, decoded by two rows each, get what a plain pass gets.

    The prompts differ in length, and a prompt's rows in their tokens, so that padding, groups, ranks and the ring of
    own columns all take part.  They are decoded in float32, where that is all but exact, and in the model's dtype.
    """
    if model.config._attn_implementation == ATTENTION:
        model.set_attn_implementation("sdpa")
    lengths = [len(text) - 2 * REST for text in texts for _ in range(2)]  # of the prompts
    rows = [ids for text in texts for ids in (text[:-REST], [*text[: -2 * REST], *text[-REST:]])]
    sequences = pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(model.device)
    own = model.dtype if model.dtype in WIDER else torch.float32
    dtypes = {torch.bfloat16, torch.float32, own}
    plain = {dtype: _plain(model, sequences, lengths, dtype) for dtype in {*dtypes, *(WIDER[each] for each in dtypes)}}
    rounding = {}
    for dtype in dtypes:
        exact = torch.cat(plain[WIDER[dtype]])
        rounding[dtype] = at_least_stored(rms(torch.cat(plain[dtype]) - exact), exact)
    model.set_attn_implementation(ATTENTION)
    if model.config._attn_implementation != ATTENTION:
        raise UnsupportedModelError("its attention cannot be replaced")
    forward: Forward = FusedForward(model) if FusedForward.applies(model) else ModuleForward(model)
    for dtype in dict.fromkeys([torch.float32, own]):
        at = forward.computing_in(dtype) if isinstance(forward, FusedForward) else forward
        at.pack(dtype == model.dtype)
        with _in(model, dtype):
            decoded = torch.cat(_decoded(at, sequences, lengths)).double().log_softmax(-1)
        at.pack(False)
        error = rms(decoded - torch.cat([row[-REST - 1 :] for row in plain[WIDER[dtype]]]))
        if not error <= FACTOR * rounding[dtype]:
            raise UnsupportedModelError(
                f"what it decodes in {str(dtype).removeprefix('torch.')} is {error:.2g} nats from its plain forward "
                f"pass, which rounding moves by {rounding[dtype]:.2g}"
            )
    return forward, {ROUNDING: rounding[own], BFLOAT16_ROUNDING: rounding[torch.bfloat16]}


def _in(model: PreTrainedModel, dtype: torch.dtype) -> AbstractContextManager[None]:
    return nullcontext() if model.dtype == dtype else computing_in(model, dtype)


def _plain(model: PreTrainedModel, sequences: Tensor, lengths: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    """(T, V) float64 log-probabilities of each row, computed in ``dtype``; its padding comes after all that counts."""
    with _in(model, dtype):
        logits = model(input_ids=sequences).logits
    return [row[: length + REST].double().log_softmax(-1) for row, length in zip(logits, lengths, strict=True)]


def _decoded(forward: Forward, sequences: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """(3, V) logits per row, after its prompt and each of two more tokens, by prefill and decoding steps."""
    device, cache = sequences.device, SharedPromptCache()
    first, _, second, _ = lengths
    cache.add_groups([first, second], [2, 2], REST)
    with cache.prefilling([0, 1], [0, 1]):
        ends = torch.tensor([first, second], device=device) - 1
        logits = forward.prefill(cache, sequences[[0, 2], :second], ends)
    steps = [logits[[0, 0, 1, 1]]]
    for offset in range(REST):
        positions = torch.tensor(lengths, device=device) + offset
        tokens = sequences.gather(1, positions[:, None])[:, 0]
        with cache.decoding(device):
            steps.append(forward.step(cache, tokens, positions))
    return list(torch.stack(steps, 1))


log = logging.getLogger(__name__)


def in_dtype(model: PreTrainedModel, dtype: str | None) -> PreTrainedModel:
    """``model``, or a copy of it with weights in ``dtype``, if it has another; a learner may train ``model`` itself.

    Buffers stay as they are: rotary frequencies in bfloat16 would turn far positions by wrong angles.
    """
    if dtype is None or model.dtype == DTYPES[dtype]:
        return model
    if DTYPES[dtype] == torch.bfloat16 and model.device.type == "cpu" and not multiplies_bfloat16():
        log.warning(
            "engine.dtype=bfloat16: this CPU has no instructions for it (AVX512-BF16, AMX); engine.dtype=float32 takes "
            "a half to a quarter of the time"
        )
    converted = copy.deepcopy(model)
    for parameter in converted.parameters():
        parameter.data = parameter.data.to(DTYPES[dtype])
    return converted

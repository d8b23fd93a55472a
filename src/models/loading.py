"""Models, tokenizers and trained policies from disk or the hub."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3ForCausalLM,
)
from transformers.utils.logging import disable_progress_bar

from ..rollout.engines.lora import Adapted
from .adapters import WEIGHTS, without_peft_warnings
from .base_models import resolve

disable_progress_bar()

ADAPTER = "adapter_config.json"
UNSUPPORTED = (
    "alora_invocation_tokens alpha_pattern fan_in_fan_out layer_replication lora_bias modules_to_save rank_pattern "
    "target_parameters trainable_token_indices use_bdlora use_dora use_qalora use_rslora"
).split()
"""Of peft's settings, those that change an adapter's output and that the engine does not compute."""


def load_model(base: str, dtype: torch.dtype = torch.float32) -> Qwen3ForCausalLM:
    """The causal LM ``base``: a shipped one (:data:`.base_models.SHIPPED`), a folder's or the hub's.  A folder with an
    adapter gives the model below it with the adapter merged in.
    """
    if (folder := Path(base)).is_dir() and is_adapter(folder):
        return load_adapter(load_model(_adapter_base(folder), dtype), base).merge_and_unload()
    return AutoModelForCausalLM.from_pretrained(resolve(base), dtype=dtype)


def load_tokenizer(base: str, *, from_hub: bool = True) -> PreTrainedTokenizerFast:
    """The tokenizer of ``base``; with ``from_hub``, one that is not here is fetched.

    Raises ``ValueError`` where there is none: of a folder without its files transformers makes one without tokens.
    """
    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(resolve(base), local_files_only=not from_hub)
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ValueError(f"{base} has no tokenizer with tokens: its tokenizer.json is missing or damaged")
    return tokenizer


def load_adapter(model: PreTrainedModel, folder: str) -> PeftModel:
    """The adapter in ``folder`` on ``model``, as peft loads it."""
    with without_peft_warnings():
        return PeftModel.from_pretrained(model, folder)


def load_adapted(folder: Path, base: str | PreTrainedModel) -> Adapted:
    """The adapter in ``folder`` on ``base``, not merged; a model that is in memory is not loaded again.

    Raises ``ValueError`` for an adapter with settings that the engine does not compute.
    """
    config = LoraConfig.from_pretrained(str(folder))
    unsupported = [name for name in UNSUPPORTED if getattr(config, name)]
    if unsupported or config.bias != "none":
        raise ValueError(
            f"{folder / ADAPTER}: an adapter with {', '.join(unsupported) or 'bias'} is not supported by the engine"
        )
    model = load_model(base) if isinstance(base, str) else base
    return Adapted(model, checkpoint_weights(folder), config.lora_alpha / config.r)


def checkpoint_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of an exported policy by name, tied ones included; of a LoRA policy its adapter's."""
    if is_adapter(folder):
        return load_file(folder / WEIGHTS)
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def is_adapter(folder: Path) -> bool:
    """Whether ``folder`` holds a peft adapter and not a complete model."""
    return (folder / ADAPTER).is_file()


def _adapter_base(folder: Path) -> str:
    """The model that the adapter in ``folder`` was trained on, by the adapter's own configuration."""
    return str(json.loads((folder / ADAPTER).read_text())["base_model_name_or_path"])


def full_base(base: str) -> str:
    """``base``, or where it is a folder with an adapter, the model without adapters below it."""
    while (folder := Path(base)).is_dir() and is_adapter(folder):
        base = _adapter_base(folder)
    return base

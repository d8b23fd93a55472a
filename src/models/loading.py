"""Base models and trained policies from disk: shipped models, folders, the hub, and adapters on them."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.resources import as_file, files
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
from .adapters import WEIGHTS, quiet

disable_progress_bar()

ADAPTER = "adapter_config.json"
FOREIGN = (
    "alora_invocation_tokens alpha_pattern fan_in_fan_out layer_replication lora_bias modules_to_save rank_pattern "
    "target_parameters trainable_token_indices use_bdlora use_dora use_qalora use_rslora"
).split()
"""Of peft's settings, those that change what an adapter computes and that the engine does not know."""

FOLDER = files("troupe.models") / "shipped"
SHIPPED = ("laptop", "laptop_couplet", "laptop_code", "laptop_math")
"""The shipped base models: folders of :data:`FOLDER`."""


class BaseModelError(RuntimeError):
    """A shipped base model is missing or damaged."""


def base_path(base: str = "laptop") -> Path:
    """Where a shipped base model lies, after checking its files against ``checksums.json``."""
    remedy = f"`make base_model base={base}`"
    with as_file(FOLDER / base) as folder:
        listing = folder / "checksums.json"
        if not listing.is_file():
            raise BaseModelError(f"no base model in {folder}; make one with {remedy}")
        for name, expected in json.loads(listing.read_text()).items():
            path = folder / name
            found = sha256(path.read_bytes()).hexdigest() if path.is_file() else "nothing"
            if found != expected:
                raise BaseModelError(f"{path} is damaged: sha256 {found}, expected {expected}; run {remedy}")
        return Path(folder)


def resolve(base: str) -> str:
    """The path or hub name of ``base``, which may be one of :data:`SHIPPED`."""
    return str(base_path(base)) if base in SHIPPED else base


def load_model(base: str, dtype: torch.dtype = torch.float32) -> Qwen3ForCausalLM:
    """A causal LM: a shipped one (see :data:`SHIPPED`), a folder's or the hub's; an adapter's folder is merged into the
    model below it.
    """
    if (folder := Path(base)).is_dir() and is_adapter(folder):
        with quiet():
            return PeftModel.from_pretrained(load_model(below(folder), dtype), folder).merge_and_unload()
    return AutoModelForCausalLM.from_pretrained(resolve(base), dtype=dtype)


def is_adapter(folder: Path) -> bool:
    """Whether ``folder`` holds a peft adapter and no whole model."""
    return (folder / ADAPTER).is_file()


def below(folder: Path) -> str:
    """The model that the adapter in ``folder`` was trained on, as the adapter says."""
    return str(json.loads((folder / ADAPTER).read_text())["base_model_name_or_path"])


def whole_base(base: str) -> str:
    """The model without adapters that ``base`` is, or that the adapter in this folder lies on."""
    while (folder := Path(base)).is_dir() and is_adapter(folder):
        base = below(folder)
    return base


def load_adapted(folder: Path, base: str | PreTrainedModel) -> Adapted:
    """The adapter in ``folder`` on ``base``, not merged; a model that is in memory is not loaded again.

    Raises ``ValueError`` for adapters that are more than the engine computes.
    """
    config = LoraConfig.from_pretrained(str(folder))
    foreign = [name for name in FOREIGN if getattr(config, name)]
    if foreign or config.bias != "none":
        raise ValueError(f"{folder / ADAPTER}: an adapter with {', '.join(foreign) or 'bias'} is not computed here")
    model = load_model(base) if isinstance(base, str) else base
    return Adapted(model, checkpoint_weights(folder), config.lora_alpha / config.r)


def load_tokenizer(base: str) -> PreTrainedTokenizerFast:
    """The tokenizer that belongs to ``base``."""
    return AutoTokenizer.from_pretrained(resolve(base))


def checkpoint_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of an exported policy by name, tied ones included; of a LoRA policy its adapter's."""
    if is_adapter(folder):
        return load_file(folder / WEIGHTS)
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()

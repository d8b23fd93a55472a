"""Models, tokenizers and trained policies from disk or the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3ForCausalLM,
)
from transformers.utils import CONFIG_NAME
from transformers.utils.logging import disable_progress_bar

from ...experience import LARGEST_VOCABULARY
from ...kernels.products import bound_cache
from ...rollout.engines.lora import Adapted
from ...rollout.engines.weights import forget_files, note_files
from ..learning.adapters import WEIGHTS, without_peft_warnings
from .base_models import resolve
from .reading import ADAPTER, adapter_base, adapter_settings, check_files, full_base, is_adapter, reading

disable_progress_bar()

NO_CODE = {"trust_remote_code": False}
"""Without it transformers asks on the terminal whether to run the code that lies beside weights."""
WEIGHTS_ALONE = {**NO_CODE, "use_safetensors": True}
"""No pickle: a base model has its weights as safetensors."""
MOST = {
    **{"num_hidden_layers": 1 << 10, "num_attention_heads": 1 << 12, "num_experts": 1 << 12},
    **{"hidden_size": 1 << 18, "intermediate_size": 1 << 20, "vocab_size": LARGEST_VOCABULARY},
    **{"head_dim": 1 << 13, "num_key_value_heads": 1 << 12, "num_labels": 1 << 16},
    "max_position_embeddings": 1 << 24,
}
"""The largest sizes in a model's configuration: even without weights, larger ones take gigabytes and minutes."""
UNSUPPORTED = (
    "alora_invocation_tokens alpha_pattern fan_in_fan_out layer_replication lora_bias modules_to_save rank_pattern "
    "target_parameters trainable_token_indices use_bdlora use_dora use_qalora use_rslora"
).split()
"""Of peft's settings, those that change an adapter's output and that the engine does not compute."""


def load_model(base: str, dtype: torch.dtype = torch.float32) -> Qwen3ForCausalLM:
    """The causal LM ``base``: a shipped one (:data:`.base_models.SHIPPED`), a folder's or the hub's.  A folder with an
    adapter gives the model below it with the adapter merged in.

    Raises ``ValueError``, also for weights that lack a tensor, and ``OSError``.
    """
    if dtype == torch.bfloat16:
        bound_cache()
    if (folder := Path(base)).is_dir() and is_adapter(folder):
        full_base(base)  # no circle
        merged: Qwen3ForCausalLM = load_adapter(load_model(adapter_base(folder), dtype), base).merge_and_unload()
        forget_files(merged)
        return merged
    return _whole_model(resolve(base), dtype=dtype)


def load_tokenizer(base: str, *, from_hub: bool = True) -> PreTrainedTokenizerFast:
    """The tokenizer of ``base``; with ``from_hub``, one that is not here is fetched.

    Raises ``ValueError`` where there is none: of a folder without its files transformers makes one without tokens.
    """
    path = resolve(base)
    check_files(Path(path))
    with reading():
        tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(
            path, local_files_only=not from_hub, **NO_CODE
        )
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ValueError(f"{base} has no tokenizer with tokens: its tokenizer.json is missing or damaged")
    return tokenizer


def load_shape(base: str, *, from_hub: bool = True) -> PretrainedConfig:
    """The configuration of ``base``, a whole model; with ``from_hub``, one that is not here is fetched.

    Raises ``ValueError``, also for sizes above :data:`MOST`, and where no length of its context is known.
    """
    path, where = resolve(base), {"local_files_only": not from_hub}
    check_files(Path(path))
    with reading():
        _check_sizes(PretrainedConfig.get_config_dict(path, **where)[0])  # before transformers makes anything of them
        shape = AutoConfig.from_pretrained(path, **where, **NO_CODE)
        # Otherwise transformers would fetch code from the hub, where a configuration names a kernel for its attention.
        shape._attn_implementation = None
    if getattr(shape, "max_position_embeddings", None) is None:
        raise ValueError(f"config.json: a {shape.model_type} has no max_position_embeddings, so no known context")
    return shape


def _check_sizes(config: Any) -> None:
    """Raise ``ValueError`` for sizes above :data:`MOST` in ``config``, at any depth."""
    for name, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, int) and value > MOST.get(name, value):
            raise ValueError(f"config.json: {name}={value} is more than {MOST[name]}")
        _check_sizes(value)


def empty_model(shape: PretrainedConfig) -> PreTrainedModel:
    """A model of ``shape``, on the device that is torch's default."""
    return AutoModelForCausalLM.from_config(shape, **NO_CODE)


def _whole_model(path: str, **options: Any) -> Any:
    """The model in the folder ``path``, or of this name on the hub."""
    shape = load_shape(path)
    with reading():
        model, report = AutoModelForCausalLM.from_pretrained(
            path, config=shape, output_loading_info=True, **options, **WEIGHTS_ALONE
        )
    if missing := sorted(report["missing_keys"]):  # transformers would draw them at random
        others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise ValueError(f"its weights lack {missing[0]}{others}")
    config = None if Path(path).is_dir() else try_to_load_from_cache(path, CONFIG_NAME)
    note_files(model, Path(config).parent if isinstance(config, str) else Path(path))
    return model


def load_adapter(model: PreTrainedModel, folder: str) -> PeftModel:
    """The adapter in ``folder`` on ``model``, as peft loads it to be trained on.  Raises ``ValueError`` for what is no
    LoRA adapter with its weights as safetensors."""
    _check_adapter(Path(folder))
    with without_peft_warnings(), reading():
        return PeftModel.from_pretrained(model, folder, is_trainable=True)


def load_adapted(folder: Path, base: str | PreTrainedModel) -> Adapted:
    """The adapter in ``folder`` on ``base``, not merged; a model that is in memory is not loaded again.

    Raises ``ValueError`` for an adapter with settings that the engine does not compute.
    """
    _check_adapter(folder)
    with reading():
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
        with reading():
            return load_file(folder / WEIGHTS)
    weights: dict[str, torch.Tensor] = _whole_model(str(folder)).state_dict()
    return weights


def _check_adapter(folder: Path) -> None:
    """Other adapters of peft read further files, and weights that are no safetensors are pickles."""
    if (kind := adapter_settings(folder).get("peft_type")) != "LORA":
        raise ValueError(f"{folder / ADAPTER}: peft_type must be LORA, got {kind!r}")
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder} has no {WEIGHTS}")

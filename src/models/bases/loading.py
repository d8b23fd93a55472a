"""Models, tokenizers and trained policies from disk or the hub; their files, whoever wrote them, raise one kind of
error and take no more memory than their size.
"""

from __future__ import annotations

import json
import pickletools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import torch
from huggingface_hub import try_to_load_from_cache
from peft import LoraConfig, PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
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

from ...errors import check_whole
from ...experience import LARGEST_VOCABULARY
from ...kernels.memory import out_of_memory
from ...rollout.engines.lora import Adapted
from ...rollout.engines.weights import forget_files, note_files
from ...runs.bounded import DEEPEST
from ..learning.adapters import WEIGHTS, without_peft_warnings
from .base_models import resolve

LARGEST: Final = 1 << 28
"""Bytes of a file beside a model's weights; tokenizers have up to 40 million."""
CONFIGURATIONS: Final = dict.fromkeys(("config.json", "generation_config.json", "adapter_config.json"), 1 << 20)
"""Bytes of each, which have a hundredth of that; transformers takes minutes for long lists in them."""
MOST_VALUES: Final = 1 << 20
"""Values in a file of states, of which a model's parameter has five or so."""
_CLASSES: Final = re.compile(
    r"collections (OrderedDict|Counter)|torch\._utils _rebuild_(tensor_v2|parameter)|torch \w+Storage"
)
"""What ``torch.save`` names for tensors and plain data; torch would make others, too, a ``bytearray`` of any size."""


def check_files(folder: Path) -> None:
    """Raise ``ValueError`` for what lies in a model's folder in place of a configuration, a tokenizer or a template and
    is no file, or too large: libraries read it whole."""
    for file in chain(folder.glob("*"), (folder / "additional_chat_templates").glob("*")):
        if file.suffix in (".json", ".jinja", ".txt", ".model"):
            if not file.is_file():
                raise ValueError(f"{file} is no file")
            if (size := file.stat().st_size) > (most := CONFIGURATIONS.get(file.name, LARGEST)):
                raise ValueError(f"{file} has {size} bytes, more than {most}")


@contextmanager
def reading() -> Iterator[None]:
    """Within, what libraries raise about files is an ``OSError`` or ``ValueError``: of a file that is damaged, or made
    to harm, they raise anything.
    """
    try:
        yield
    except (OSError, ValueError, MemoryError):
        raise
    except SafetensorError as error:
        raise ValueError(f"its weights are damaged or cut off ({error})") from error
    except Exception as error:
        if out_of_memory(error):
            raise
        if "ignore_mismatched_sizes" in str(error):  # an option that users of Troupe do not have
            raise ValueError("its weights have other shapes than config.json says") from error
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"its files are damaged, or do not fit together ({type(error).__name__}: {reason})") from error


def read_states(file: Path) -> dict[str, Any]:
    """What ``torch.save`` wrote to ``file``, on the CPU; only tensors and plain data.

    Raises ``ValueError``, also for an archive whose entries are larger than the file (torch compresses nothing, and a
    megabyte can unfold to a gigabyte), and for values that are more than the file has bytes for: lists that contain
    each other, tensors that repeat an element.
    """
    with reading():
        with ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > file.stat().st_size:
                raise ValueError(f"{file.name} would unfold to {size} bytes, and has {file.stat().st_size}")
            for name in (name for name in archive.namelist() if name.endswith("data.pkl")):
                _check_classes(file.name, archive.read(name))
        states = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(states, dict):
        raise ValueError(f"{file.name} holds no keys")
    _check_values(file.name, states)
    return states


def _check_classes(name: str, pickled: bytes) -> None:
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name == "GLOBAL" and not _CLASSES.fullmatch(str(argument)):
            raise ValueError(f"{name} holds {argument}, and not only tensors and plain data")


def _check_values(name: str, states: dict[Any, Any]) -> None:
    """Count values as whoever walks through them meets them: one that is in two lists twice."""
    waiting: list[tuple[Any, int]] = [(states, 1)]
    count = 0
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, Tensor):
            plain = value.layout == torch.strided and not value.is_quantized and value.device.type == "cpu"
            if not plain or value.nbytes > value.untyped_storage().nbytes():
                raise ValueError(f"{name} holds a tensor of {tuple(value.shape)} that has no such content")
        elif isinstance(value, dict | list | tuple):
            if isinstance(value, dict) and not all(isinstance(key, str | int) for key in value):
                raise ValueError(f"{name} holds keys that are no names")
            count += len(value)
            if count > MOST_VALUES or depth > DEEPEST:
                raise ValueError(f"{name} holds more than {MOST_VALUES} values, or {DEEPEST} within each other")
            waiting += ((each, depth + 1) for each in (value.values() if isinstance(value, dict) else value))
        elif value is not None and not isinstance(value, int | float | str):
            raise ValueError(f"{name} holds a {type(value).__name__}")


disable_progress_bar()

ADAPTER = "adapter_config.json"
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
    if (folder := Path(base)).is_dir() and is_adapter(folder):
        full_base(base)  # no circle
        merged: Qwen3ForCausalLM = load_adapter(load_model(_adapter_base(folder), dtype), base).merge_and_unload()
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


def is_adapter(folder: Path) -> bool:
    """Whether ``folder`` holds a peft adapter and not a complete model."""
    return (folder / ADAPTER).is_file()


def adapter_rank(folder: Path) -> int:
    """The rank r of the adapter in ``folder``.  Raises ``ValueError``."""
    rank: Any = _adapter_settings(folder).get("r")
    check_whole(f"{folder / ADAPTER}: r", rank, 1)
    return int(rank)


def _adapter_settings(folder: Path) -> dict[str, Any]:
    check_files(folder)
    with reading():
        settings = json.loads((folder / ADAPTER).read_text())
    if not isinstance(settings, dict):
        raise ValueError(f"{folder / ADAPTER} must hold keys")
    return settings


def _check_adapter(folder: Path) -> None:
    """Other adapters of peft read further files, and weights that are no safetensors are pickles."""
    if (kind := _adapter_settings(folder).get("peft_type")) != "LORA":
        raise ValueError(f"{folder / ADAPTER}: peft_type must be LORA, got {kind!r}")
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder} has no {WEIGHTS}")


def _adapter_base(folder: Path) -> str:
    """The model that the adapter in ``folder`` was trained on, by the adapter's own configuration."""
    return str(_adapter_settings(folder).get("base_model_name_or_path"))


def full_base(base: str) -> str:
    """``base``, or where it is a folder with an adapter, the model without adapters below it.

    Raises ``ValueError`` for adapters that lie on each other in a circle.
    """
    seen = set()
    while (folder := Path(base)).is_dir() and is_adapter(folder):
        if folder.resolve() in seen:
            raise ValueError(f"{folder / ADAPTER}: base_model_name_or_path leads back to {folder}")
        seen.add(folder.resolve())
        base = _adapter_base(folder)
    return base

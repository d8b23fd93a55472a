"""Files of models and states, whoever wrote them: one kind of error, and no more memory than their size.

Here is what needs no library that takes seconds to import.
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
from safetensors import SafetensorError
from torch import Tensor

from ...errors import check_whole
from ...kernels.memory import out_of_memory
from ...runs.bounded import DEEPEST

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


# ---- adapters --------------------------------------------------------------------------------------------------------

ADAPTER = "adapter_config.json"


def is_adapter(folder: Path) -> bool:
    """Whether ``folder`` holds a peft adapter and not a complete model."""
    return (folder / ADAPTER).is_file()


def adapter_rank(folder: Path) -> int:
    """The rank r of the adapter in ``folder``.  Raises ``ValueError``."""
    rank: Any = adapter_settings(folder).get("r")
    check_whole(f"{folder / ADAPTER}: r", rank, 1)
    return int(rank)


def adapter_settings(folder: Path) -> dict[str, Any]:
    check_files(folder)
    with reading():
        settings = json.loads((folder / ADAPTER).read_text())
    if not isinstance(settings, dict):
        raise ValueError(f"{folder / ADAPTER} must hold keys")
    return settings


def adapter_base(folder: Path) -> str:
    """The model that the adapter in ``folder`` was trained on, by the adapter's own configuration."""
    return str(adapter_settings(folder).get("base_model_name_or_path"))


def full_base(base: str) -> str:
    """``base``, or where it is a folder with an adapter, the model without adapters below it.

    Raises ``ValueError`` for adapters that lie on each other in a circle.
    """
    seen = set()
    while (folder := Path(base)).is_dir() and is_adapter(folder):
        if folder.resolve() in seen:
            raise ValueError(f"{folder / ADAPTER}: base_model_name_or_path leads back to {folder}")
        seen.add(folder.resolve())
        base = adapter_base(folder)
    return base

"""Files of models and states, whoever wrote them: one kind of error, and no more memory than their size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from safetensors import SafetensorError

from ..memory import out_of_memory


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

    Raises ``ValueError``, also for an archive whose entries are larger than the file: torch compresses nothing, and a
    megabyte can unfold to a gigabyte.
    """
    with reading():
        with ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > file.stat().st_size:
            raise ValueError(f"{file.name} would unfold to {size} bytes, and has {file.stat().st_size}")
        states = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(states, dict):
        raise ValueError(f"{file.name} holds no keys")
    return states

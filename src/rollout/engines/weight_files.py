"""The files that a model's weights were read from, which an engine's process may read itself."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

NOTED = "weight_files"
"""The attribute of a model, and of its copies, in which they are noted."""
WITHIN = {torch.float32: {"F32", "BF16", "F16"}, torch.float64: {"F64", "F32", "BF16", "F16"}}
"""By the dtype of a model, those of files whose numbers it holds unchanged."""


def note_files(model: PreTrainedModel, folder: Path) -> None:
    """``model`` has the weights that lie in ``folder``, where transformers looks for one file first."""
    index, names = folder / SAFE_WEIGHTS_INDEX_NAME, {SAFE_WEIGHTS_NAME}
    if not (folder / SAFE_WEIGHTS_NAME).is_file():
        names = set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else set()
    setattr(model, NOTED, tuple((folder / name).absolute() for name in sorted(names)))


def forget_files(model: PreTrainedModel) -> None:
    """Its weights have changed."""
    setattr(model, NOTED, ())


def files_of(model: PreTrainedModel, dtype: torch.dtype) -> tuple[Path, ...]:
    """The files that hold, read in ``dtype``, the weights that ``model`` has in ``dtype``; () where none are known to.

    A model that was rounded to another dtype on the way has other weights than its files.
    """
    files: tuple[Path, ...] = getattr(model, NOTED, ())
    if model.dtype == dtype or {each for file in files for each in _dtypes(file)} <= WITHIN.get(model.dtype, set()):
        return files
    return ()


def _dtypes(file: Path) -> set[str]:
    with safe_open(file, "pt") as opened:
        return {opened.get_slice(name).get_dtype() for name in opened.keys()}  # noqa: SIM118  it is no mapping

"""New weights into a model, strictly; and the files that a model's weights were read from, which an engine's process
may read itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_strictly(policy: str, model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """:func:`load_into` the whole of ``model``."""
    load_into(policy, model.state_dict(), weights)


def assign_strictly(policy: str, model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """Make ``weights`` themselves those of ``model``, without a copy; a tied one may come under any of its names.

    Raises as :func:`check_fit`; nothing is changed then.
    """
    own = model.state_dict()
    tied = tied_names(own)
    check_fit(policy, tied, {name: tensor.shape for name, tensor in own.items()}, weights)
    complete: dict[str, Tensor] = {}
    for names in tied:
        complete |= dict.fromkeys(names, next(weights[name].detach() for name in names if name in weights))
    model.load_state_dict(complete, assign=True)
    model.to(model.device)  # its buffers, which are no weights


@torch.no_grad()
def load_into(policy: str, own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Copy ``weights`` into the tensors ``own``, in their dtype and on their device.

    Raises as :func:`check_fit`; nothing is changed then.
    """
    check_fit(policy, tied_names(own), {name: tensor.shape for name, tensor in own.items()}, weights)
    for name, tensor in own.items():
        if name in weights:
            tensor.copy_(weights[name])


def tied_names(weights: Mapping[str, Tensor]) -> list[list[str]]:
    """All names of each tensor: several where weights are tied."""
    places: dict[tuple[object, ...], list[str]] = {}  # where a tensor lies -> its names
    for name, tensor in weights.items():
        places.setdefault((tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())), []).append(name)
    return list(places.values())


def check_fit(
    policy: str, tied: Sequence[Sequence[str]], shapes: Mapping[str, torch.Size], weights: Mapping[str, Tensor]
) -> None:
    """Raise ``ValueError``, naming them, for weights that are missing, unknown, of another shape or tied and different.

    ``tied`` has the names of each tensor, of which any will do, or several if they agree; ``shapes`` are by name.
    """
    problems = {
        "missing": [names[0] for names in tied if not any(name in weights for name in names)],
        "unknown": [name for name in weights if name not in shapes],
        "of another shape": [
            f"{name} ({tuple(weights[name].shape)} for {tuple(shape)})"
            for name, shape in shapes.items()
            if name in weights and weights[name].shape != shape
        ],
        "tied but different": [
            " and ".join(present)
            for names in tied
            if len(present := [name for name in names if name in weights]) > 1
            and any(not torch.equal(weights[present[0]], weights[name]) for name in present[1:])
        ],
    }
    if any(problems.values()):
        text = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in problems.items() if names)
        raise ValueError(f"policy '{policy}': these weights do not fit: {text}")


NOTED = "weight_files"
"""The attribute of a model, and of its copies, in which they are noted."""
WITHIN = {torch.float32: {"F32", "BF16", "F16"}, torch.float64: {"F64", "F32", "BF16", "F16"}}
"""By the dtype of a model, those of files whose numbers it holds unchanged."""


def note_files(model: PreTrainedModel, folder: Path) -> None:
    """``model`` has the weights that lie in ``folder``, where transformers looks for one file first."""
    index, names = folder / "model.safetensors.index.json", {"model.safetensors"}
    if not (folder / "model.safetensors").is_file():
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

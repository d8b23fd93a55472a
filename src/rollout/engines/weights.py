"""New weights into a model, strictly."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel


def load_strictly(policy: str, model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """:func:`load_into` the whole of ``model``."""
    load_into(policy, model.state_dict(), weights)


@torch.no_grad()
def load_into(policy: str, own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Copy ``weights`` into the tensors ``own``, in their dtype and on their device.

    A tied weight may be given under any of its names, or under several if they agree.  Raises ``ValueError``, naming
    them, for weights that are missing, unknown, of another shape or tied and different; nothing is changed then.
    """
    places: dict[tuple[object, ...], list[str]] = {}  # where a tensor lies -> its names
    for name, tensor in own.items():
        places.setdefault((tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())), []).append(name)
    problems = {
        "missing": [names[0] for names in places.values() if not any(name in weights for name in names)],
        "unknown": [name for name in weights if name not in own],
        "of another shape": [
            f"{name} ({tuple(weights[name].shape)} for {tuple(tensor.shape)})"
            for name, tensor in own.items()
            if name in weights and weights[name].shape != tensor.shape
        ],
        "tied but different": [
            " and ".join(tied)
            for names in places.values()
            if len(tied := [name for name in names if name in weights]) > 1
            and any(not torch.equal(weights[tied[0]], weights[name]) for name in tied[1:])
        ],
    }
    if any(problems.values()):
        reasons = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in problems.items() if names)
        raise ValueError(f"policy '{policy}': these weights do not fit: {reasons}")
    for name, tensor in own.items():
        if name in weights:
            tensor.copy_(weights[name])

"""A model's structure without its weights: it runs on any weights that fit, and holds none itself."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel


class Skeleton:
    """Takes ``model`` apart; its buffers, which no checkpoint has, stay."""

    def __init__(self, model: PreTrainedModel) -> None:
        own = model.state_dict()
        self._shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
        places: dict[tuple[object, ...], list[str]] = {}  # where a tensor lies -> its names
        for name, tensor in own.items():
            places.setdefault((tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())), []).append(name)
        self._tied = list(places.values())
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                empty = nn.Parameter(torch.empty(0, dtype=parameter.dtype), requires_grad=False)
                module.register_parameter(name, empty)
        self._model = model.eval()

    @property
    def names(self) -> list[str]:
        """Of all weights, a tied one once: under its first name, as in a checkpoint."""
        return [names[0] for names in self._tied]

    @property
    def tied(self) -> dict[str, str]:
        """The other names of tied weights, each with the first."""
        return {other: names[0] for names in self._tied for other in names[1:]}

    def complete(self, policy: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``weights`` under all their names: a tied one may be given under any.

        Raises ``ValueError``, naming them, for weights that are missing, unknown, of another shape or tied and
        different.
        """
        whole = dict(weights)
        problems: dict[str, list[str]] = {
            "missing": [],
            "unknown": [],
            "of another shape": [],
            "tied but different": [],
        }
        for names in self._tied:
            given = [name for name in names if name in weights]
            if not given:
                problems["missing"].append(names[0])
                continue
            if any(not torch.equal(weights[given[0]], weights[name]) for name in given[1:]):
                problems["tied but different"].append(" and ".join(given))
            whole |= dict.fromkeys(names, weights[given[0]])
        problems["unknown"] = [name for name in weights if name not in self._shapes]
        problems["of another shape"] = [
            f"{name} ({tuple(tensor.shape)} for {self._shapes[name]})"
            for name, tensor in weights.items()
            if name in self._shapes and tuple(tensor.shape) != self._shapes[name]
        ]
        if any(problems.values()):
            told = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in problems.items() if names)
            raise ValueError(f"policy '{policy}': these weights do not fit: {told}")
        return whole

    @torch.no_grad()
    def next_logprobs(self, weights: Mapping[str, Tensor], ids: tuple[int, ...]) -> Tensor:
        """(V,) float32, nats: of the token after ``ids``, with complete ``weights``, on their device."""
        device = next(iter(weights.values())).device
        tensors = (torch.tensor([ids], device=device),)
        given = {"use_cache": False, "logits_to_keep": 1}
        output = functional_call(self._model.to(device), dict(weights), tensors, given, tie_weights=False)
        return torch.log_softmax(output.logits[0, -1].float(), dim=-1)

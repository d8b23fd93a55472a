"""A model's plain forward pass on text, in any dtype: what the gates of engines compare with, and how exactly.

A gate asks whether an engine computes what the model computes.  Both round, in another order, so that they differ; how
much depends on the model and on what it reads.  In bfloat16 Qwen2.5-Coder-0.5B, whose keys have biases up to 211, moves
by a third of a nat on random tokens and by less than a hundredth on Python.  So a gate reads text, and its tolerance is
:data:`FACTOR` times the rounding of the model's own plain pass there: how far that is, in the engine's dtype, from a
plain pass in a wider one with the same weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

FACTOR = 8.0
"""How much more than by the rounding of its own plain pass an engine may be apart, both as root mean squares.

In random models of seven architectures honest engines are at most 1.6 times as far.  The rest is for attention that is
nearly a choice between two tokens, where the last bit decides: of 40 random Qwen2 with key biases of 200 the farthest
is at 3.8, and the nearest of a layer that lacks an update of 1e-5 at 10.
"""
WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}
"""The dtype whose plain pass counts as exact, for each that an engine computes in."""
ROUNDING, BFLOAT16_ROUNDING = "rounding_nats", "bfloat16_rounding_nats"
"""What engines measure of a model's plain pass on text at the start, and tell with its weights: the rounding in their
own dtype, and in bfloat16, for learners that are coarser than the engine.
"""

PAGE = '''\
A delivery robot waits at the door of a library. It has four parcels, a map of the building and a battery that lasts
for twenty minutes. The reading room is on the second floor, to the left of the stairs; nobody may enter it after six.
How many rooms can it visit before it must return, if each visit takes three minutes and the lift needs one?

def longest_run(numbers: list[int]) -> int:
    """The length of the longest part of `numbers` in which each is larger than the one before."""
    best = current = 1 if numbers else 0
    for previous, number in zip(numbers, numbers[1:]):
        current = current + 1 if number > previous else 1
        best = max(best, current)
    return best

Two friends share a garden of 48 square metres. Ana plants tomatoes on a third of it, and Ben leaves 12 square metres
to the bees. First they draw a plan, then they compare it with last year's: "The beans were too close to the wall," says
Ben, "and nothing grew under the cherry tree." What is left for the potatoes?

class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("pop from an empty stack")
        return self.items.pop()
'''
"""What is read where no world's prompts are known."""


def passages(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Sequence[int]], vocabulary: int, lengths: Sequence[int]
) -> list[tuple[int, ...]]:
    """Consecutive passages of ``lengths`` tokens of ``prompts``, the world's own, and then of :data:`PAGE`.

    A tokenizer that does not know the page's words gives its own words, in an order that is always the same.
    """
    page = tokenizer(PAGE, add_special_tokens=False)["input_ids"]
    if Counter(page).most_common(1)[0][1] > len(page) / 3:  # the token for all that is unknown
        words = sorted(set(range(min(len(tokenizer), vocabulary))) - set(tokenizer.all_special_ids))
        page = Random(0).sample(words, len(words))
    text = cycle(token for part in (*prompts, page) for token in part if token < vocabulary)
    return [tuple(islice(text, length)) for length in lengths]


def at_least_stored(rounding: float, logprobs: Tensor) -> float:
    """``rounding``, or that of the float32 in which ``logprobs`` would be stored, where that is more."""
    return max(rounding, torch.finfo(torch.float32).eps * rms(logprobs))


def rms(differences: Tensor) -> float:
    """The root mean square; infinite where one of them is not finite."""
    mean = differences.double().square().mean().sqrt().item()
    return mean if math.isfinite(mean) else math.inf


@contextmanager
def highest_precision() -> Iterator[None]:
    """Within, products in float32 are products in float32, whatever the run has them rounded to on a GPU."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def unchanged(name: str, weight: Tensor) -> Tensor:
    return weight


@contextmanager
def computing_in(
    model: PreTrainedModel, dtype: torch.dtype, weights: Callable[[str, Tensor], Tensor] = unchanged
) -> Iterator[None]:
    """Within, ``model`` computes in ``dtype``, with ``weights(name, weight)`` in place of each weight.

    A module has its weights in ``dtype`` only while it computes: the memory of the largest, which is the output layer,
    not of a copy.
    """
    with ExitStack() as stack:
        for path, module in model.named_modules():
            if type(module) is nn.Embedding:  # its rows are what it gives
                stack.callback(module.register_forward_hook(partial(_given_in, path, dtype, weights)).remove)
            elif any(weight is not None for weight in module._parameters.values()):
                swap = _Swap(path, dtype, weights)
                stack.callback(module.register_forward_pre_hook(swap.enter).remove)
                stack.callback(module.register_forward_hook(swap.leave, always_call=True).remove)
        yield


def _given_in(
    path: str,
    dtype: torch.dtype,
    weights: Callable[[str, Tensor], Tensor],
    module: nn.Module,
    arguments: tuple[Any, ...],
    output: Tensor,
) -> Tensor:
    return weights(f"{path}.weight", output).to(dtype)


class _Swap:
    """The weights of one module, while it computes."""

    def __init__(self, path: str, dtype: torch.dtype, weights: Callable[[str, Tensor], Tensor]) -> None:
        self.path, self.dtype, self.weights = path, dtype, weights
        self.own: dict[str, Any] = {}

    def enter(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.own = dict(module._parameters)
        for name, weight in self.own.items():
            if weight is not None:
                converted = self.weights(f"{self.path}.{name}", weight.detach()).to(self.dtype)
                module._parameters[name] = nn.Parameter(converted, requires_grad=False)

    def leave(self, module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        module._parameters.update(self.own)

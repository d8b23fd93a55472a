"""Engines with small models wait while small models are updated in the same process, on a CPU.

A pass of a model of fewer than a million parameters is mostly the interpreter's work.  Each kernel releases its lock,
and asks for it again, so that threads wait for each other in every kernel.  Two learners in two threads gain by two
cores all the same; two learners and two engines together take half as much CPU time again, and longer than one pair
after the other (docs/asynchrony.md has the figures).  Kernels of larger models take longer than such a wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

SMALL = 2_000_000
"""Parameters, at most, of a model that is small."""

_changed = threading.Condition()
_updates = 0


def is_small(model: nn.Module) -> bool:
    """Whether ``model`` is on a CPU, with at most :data:`SMALL` parameters."""
    parameters = list(model.parameters())
    on_cpu = all(each.device == torch.device("cpu") for each in parameters)
    return on_cpu and sum(each.numel() for each in parameters) <= SMALL


@contextmanager
def updating(small: bool) -> Iterator[None]:
    """An update of a model, which is ``small`` (:func:`is_small`) or not.  It must wait for no engine."""
    global _updates
    with _changed:
        _updates += small
    try:
        yield
    finally:
        with _changed:
            _updates -= small
            _changed.notify_all()


def await_updates(small: bool) -> None:
    """Before a pass of an engine's model, which is ``small`` or not: wait until no small model is updated."""
    if small and _updates:
        with _changed:
            _changed.wait_for(lambda: not _updates)

"""Threads that compute with small models on a CPU take turns.

A pass of a model of fewer than a million parameters is mostly the interpreter's work.  Each kernel releases its lock,
and asks for it again, so that an engine and a learner in two threads, or two learners, wait for each other in every
kernel: side by side they take a third more CPU time, and no less wall time (docs/asynchrony.md has the figures).
Kernels of larger models take longer than such a wait.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

SMALL = 2_000_000
"""Parameters, of models that take turns, at most."""

_TURN = threading.Lock()


def turn(model: nn.Module) -> AbstractContextManager[Any]:
    """To be held during a pass of ``model``: this process's only turn where it is small and on a CPU, else nothing.

    Whoever holds it must wait for no other process, and for no other thread that may want it.
    """
    parameters = list(model.parameters())
    is_small = sum(each.numel() for each in parameters) <= SMALL
    on_cpu = all(each.device == torch.device("cpu") for each in parameters)
    return _TURN if is_small and on_cpu else nullcontext()

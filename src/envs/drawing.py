"""Tasks by drawing: a world draws boards, or the like, until it has enough of a split."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import get_args

from ..experience import Split, Task


def different(
    name: str, split: Split, count: int, seed: int, draw: Callable[[Random], Task | None], *, patience: int
) -> list[Task]:
    """``count`` different tasks of ``split`` in the order in which ``draw`` found them; None is a draw that failed.

    ``name`` is the world's.  Raises ``ValueError`` for an unknown split, and where more than ``patience`` draws in a
    row bring nothing new.
    """
    if split not in get_args(Split):
        raise ValueError(f"{name} has the splits {', '.join(get_args(Split))}, not {split}")
    rng = Random(f"{name}/{split}/{seed}")
    found: dict[str, Task] = {}
    fruitless = 0
    while len(found) < count:
        task = draw(rng)
        if task is None or task.split != split or task.task_id in found:
            fruitless += 1
            if fruitless > patience:
                raise ValueError(f"{name}: found only {len(found)} of {count} different {split} tasks")
            continue
        found[task.task_id] = task
        fruitless = 0
    return list(found.values())

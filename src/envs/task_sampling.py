"""Rejection sampling of tasks: a world draws random tasks until it has enough different ones of a split."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ..experience import Split, Task
from .setting_checks import check_split


def sample_tasks(
    world: str,
    split: Split,
    count: int,
    seed: int,
    draw: Callable[[Random], Task | None],
    *,
    max_rejections: int,
) -> list[Task]:
    """``count`` different tasks of ``split``, in the order of the draws.

    ``draw`` gives a random task of any split, or None where the draw fails.  ``world`` is the world's name.  Raises
    ``ValueError`` for an unknown split, and after more than ``max_rejections`` draws in a row without a new task.
    """
    check_split(world, split)
    rng = Random(f"{world}/{split}/{seed}")
    tasks: dict[str, Task] = {}
    rejections = 0
    while len(tasks) < count:
        task = draw(rng)
        if task is None or task.split != split or task.task_id in tasks:
            rejections += 1
            if rejections > max_rejections:
                raise ValueError(f"{world}: found only {len(tasks)} of {count} different {split} tasks")
            continue
        tasks[task.task_id] = task
        rejections = 0
    return list(tasks.values())

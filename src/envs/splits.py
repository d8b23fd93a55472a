"""The split of a task, decided by its content alone, and random tasks of a split."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from random import Random

from ..experience import Split, Task
from .setting_checks import check_split


def content_digest(content: str, size: int = 6) -> str:
    """A short stable name of ``content``: 2 * ``size`` hexadecimal digits."""
    return blake2b(content.encode(), digest_size=size).hexdigest()


def split_of(digest: str) -> Split:
    """The split of the content with this digest: 80 % train, 10 % validation, 10 % test."""
    bucket = int(digest, 16) % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def sample_tasks(
    world: str,
    split: Split,
    count: int,
    seed: int,
    draw: Callable[[Random], Task | None],
    *,
    max_rejections: int,
) -> list[Task]:
    """``count`` different tasks of ``split``, in the order of the draws: rejection sampling.

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

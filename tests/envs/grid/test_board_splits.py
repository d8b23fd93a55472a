"""Splits are disjoint by content: no board of one is a board of another, turned or mirrored."""

from collections import Counter
from random import Random
from typing import get_args

import numpy as np
import pytest

from troupe.envs.grid.board import canonical_form, form_digest, symmetries
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.splits import split_of
from troupe.experience import Split, Task

SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}


def least_image(task: Task, size: int) -> bytes:
    """The least of the 8 images, by turning and mirroring an array: another way than the worlds'."""
    board = np.zeros((len(task.data), size**2), dtype=np.uint8)
    for layer, key in enumerate(sorted(set(task.data) - {"mapped", "distance"})):
        place = task.data[key]
        board[layer, [place] if isinstance(place, int) else sorted(place)] = 1
    board = board.reshape(-1, size, size)
    reflections = (board, board[:, :, ::-1])
    return min(np.rot90(one, turns, axes=(1, 2)).tobytes() for one in reflections for turns in range(4))


@pytest.mark.parametrize(
    ("world", "count"),
    [
        pytest.param(PlanPath(), 2500, marks=pytest.mark.slow),
        (PlanPath(size=4, min_distance=2), 500),
        pytest.param(Sokoban(), 1000, marks=pytest.mark.slow),
        (Sokoban(), 100),
        (Sokoban(size=7, boxes=2), 50),
    ],
)
def test_no_board_is_in_two_splits(world: PlanPath | Sokoban, count: int) -> None:
    boards_of: dict[str, set[bytes]] = {}
    for split in get_args(Split):
        tasks = [task for seed in (0, 1) for task in world.tasks(split, int(SHARES[split] * count), seed)]
        boards = {least_image(task, world.size): task.task_id for task in tasks}
        assert len(boards) == len({task.task_id for task in tasks})  # one id a board: neither more nor fewer
        boards_of[split] = set(boards)
    assert not boards_of["train"] & boards_of["validation"]
    assert not boards_of["train"] & boards_of["test"]
    assert not boards_of["validation"] & boards_of["test"]


@pytest.mark.slow
def test_no_map_that_a_tool_agent_sees_in_training_is_held_out() -> None:
    world, maps = Sokoban(), {}
    for split, count in (("train", 2000), ("validation", 250), ("test", 250)):
        maps[split] = {
            canonical_form(world.size, [task.data[key] for key in ("walls", "boxes", "goals")])
            for task in world.tasks(split, count, 0)
        }
    assert not maps["train"] & (maps["validation"] | maps["test"])
    assert not maps["validation"] & maps["test"]


@pytest.mark.parametrize("world", [PlanPath(), Sokoban()])
@pytest.mark.slow
def test_every_image_of_a_board_is_the_same_task(world: PlanPath | Sokoban) -> None:
    splits = Counter()
    for seed in range(1500):
        drawn = [(split, world._draw(split, Random(seed))) for split in SHARES]
        task = next((task for split, task in drawn if task and task.split == split), None)
        if task is None:
            continue
        splits[task.split] += 1
        keys = [key for key in task.data if key not in ("mapped", "distance")]
        layers = [[v] if isinstance(v := task.data[key], int) else v for key in keys]
        names = {
            form_digest(world.size, canonical_form(world.size, [[image[cell] for cell in layer] for layer in layers]))
            for image in symmetries(world.size)
        }
        assert names == {task.task_id.removeprefix(f"{world.name}-")}
        map_layers = [
            layer for key, layer in zip(keys, layers, strict=True) if world.name != "sokoban" or key != "worker"
        ]
        forms = {
            canonical_form(world.size, [[image[cell] for cell in layer] for layer in map_layers])
            for image in symmetries(world.size)
        }
        splits_of_images = {split_of(form_digest(world.size, form)) for form in forms}
        assert splits_of_images == {task.split}
    assert {split: count / splits.total() for split, count in splits.items()} == pytest.approx(SHARES, abs=0.035)

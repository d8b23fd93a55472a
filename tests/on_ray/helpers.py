"""Which nodes a run is on, when they are killed, and how two runs are compared."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from troupe.loop import TrainLoop
from troupe.models.bases.loading import checkpoint_weights

from ..processes import below, command

SETTINGS = (
    *("name=ray", "loop.tasks_per_iteration=3", "loop.eval_every=5", "threads=1"),
    *("loop.validation_tasks=1", "loop.test_tasks=1", "env.horizon=2", "loop.checkpoint.every=1"),
    *("strategy.accelerator=cpu", "strategy.precision=64-true"),
)
SMALL = ("experiment=sokoban_specialized", *SETTINGS)
Sampled = dict[tuple[str, int], list[tuple[int, ...]]]
"""By run and iteration, the tokens of all candidates."""


def node_of(cluster: Any, group: Any, index: int = 0) -> Any:
    """The node on which the actor ``index`` of ``group`` is."""
    from ray.util.placement_group import placement_group_table

    place = placement_group_table(group.group)["bundles_to_node_id"][index]
    return next(node for node in cluster.worker_nodes if node.node_id == place)


def processes(node: Any, name: str) -> list[int]:
    """Those of ``node`` that have ``name`` in their command line."""
    [raylet] = node.all_processes["raylet"]
    return [pid for pid in below(raylet.process.pid) if name in command(pid)]


def kill_after(loop: TrainLoop, iteration: int, kill: Callable[[], object]) -> None:
    """Call ``kill`` once, after ``iteration`` iterations, before the checkpoint of the last one."""
    inner = loop.run_iteration

    async def run_iteration() -> dict[str, Any]:
        row = await inner()
        if loop.progress.iteration == iteration:
            kill()
        return row

    loop.run_iteration = run_iteration  # type: ignore[method-assign]


def difference(one: Path, two: Path, policies: Sequence[str] = ("tool", "plan")) -> float:
    """The largest of a weight, over all policies."""
    largest = 0.0
    for policy in policies:
        first, second = (checkpoint_weights(run / "checkpoints" / "last" / policy) for run in (one, two))
        assert first.keys() == second.keys()
        largest = max(largest, *(float((first[key] - second[key]).abs().max()) for key in first))
    return largest


def assert_same(sampled: Sampled, iterations: int) -> None:
    """Whether the runs ``one`` and ``two`` have sampled the same."""
    assert len(sampled) == 2 * iterations
    for iteration in range(iterations):
        assert len(sampled["one", iteration]) > 20
        assert sampled["two", iteration] == sampled["one", iteration]


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

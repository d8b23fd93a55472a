"""When a run validates, and which weights are its best."""

from types import SimpleNamespace
from typing import Any, cast

from troupe.envs.base import TeamEnv
from troupe.evaluation.held_out import HeldOut
from troupe.runs.progress import Progress


class Fixed(HeldOut):
    """Evaluations whose success is known."""

    def __init__(self, eval_every: int, successes: list[float]) -> None:
        self.settings = cast(Any, SimpleNamespace(loop=SimpleNamespace(eval_every=eval_every)))
        self.successes = iter(successes)

    async def evaluate(self, *arguments: Any, **more: Any) -> dict[str, Any]:
        return {"success": next(self.successes)}


async def test_of_equally_good_weights_the_first_are_the_best() -> None:
    held_out, progress, world = Fixed(2, [0.0, 0.6, 0.6, 0.5]), Progress(), cast(TeamEnv, None)
    best: list[tuple[float, int | None]] = []
    for progress.iteration in range(1, 8):
        row = await held_out.validate(world, progress, last=progress.iteration == 7)
        assert ("eval/success" in row) == (progress.iteration in (2, 4, 6, 7))
        best.append((progress.best, progress.best_iteration))
    assert best == [(-1.0, None), (0.0, 2), (0.0, 2), *[(0.6, 4)] * 4]

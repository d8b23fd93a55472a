"""Several worlds at once: every episode is played in one of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from math import ceil, floor
from random import Random

from ..experience import Split, Task
from .base import Delegating, TeamEnv
from .returned import TaskSource


class Mixed(Delegating):
    """``worlds`` by name, each with its part of the tasks: ``shares`` in any unit, equal by default.

    ``agents`` are those of all worlds; agents of one name are one agent, with one policy.  The parts of an iteration's
    tasks are exact within one task; the seed decides how they are rounded, so that the shares hold in the mean.  Tasks
    name their world, and metrics are given by world too.
    """

    name = "mixed"

    def __init__(self, *, worlds: Mapping[str, TeamEnv], shares: Mapping[str, float] | None = None) -> None:
        if not worlds:
            raise ValueError("env.worlds is empty: name at least one world")
        shares = dict.fromkeys(worlds, 1.0) if shares is None else shares
        for name in {**worlds, **shares}:
            if name not in worlds:
                raise ValueError(f"env.shares.{name}: there is no env.worlds.{name}; worlds: {', '.join(worlds)}")
            if not isinstance(worlds[name], TeamEnv):
                raise ValueError(f"env.worlds.{name} must be a world, got {worlds[name]!r}")
            if not isinstance(shares.get(name, 0.0), int | float):
                raise ValueError(f"env.shares.{name} must be a number, got {shares[name]!r}")
            if not shares.get(name, 0.0) > 0:
                raise ValueError(f"env.shares.{name} must be above 0, got {shares.get(name)}; or leave the world out")
        self.worlds, self.shares = dict(worlds), dict(shares)
        self._sources = {name: TaskSource(world) for name, world in worlds.items()}
        self.agents = tuple(dict.fromkeys(agent for world in worlds.values() for agent in world.agents))
        self.horizon = max(world.horizon for world in worlds.values())
        self._name, self.world = next(iter(worlds.items()))
        self._drawn = False

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        mixture: list[Task] = []
        for name, (part, most) in self._parts(count, f"{split}/{seed}").items():
            # Each world must have as many tasks as any seed may want, so that a lack shows at once.
            tasks = self._sources[name].tasks(split, most, seed)[:part] if most else []
            mixture += [replace(t, task_id=f"{name}:{t.task_id}", world=name, data={"task": t}) for t in tasks]
        Random(f"mixed/{split}/{seed}").shuffle(mixture)
        return mixture

    def _parts(self, count: int, seed: str) -> dict[str, tuple[int, int]]:
        """By world: its number of the ``count`` tasks, and the largest number that another seed may give.

        Systematic sampling (Madow 1949): shares laid end to end on a line of length ``count``, of which every whole
        number plus the same random fraction is picked.  A world's number is its exact share rounded down or up, up as
        often as makes the mean exact.
        """
        total = sum(map(Fraction, self.shares.values()))  # exact: a share that divides must not be rounded
        start = Fraction(Random(f"mixed/parts/{seed}").random())
        ends = accumulate((count * Fraction(share) / total for share in self.shares.values()), initial=Fraction(0))
        return {
            name: (floor(end + start) - floor(begin + start), ceil(end - begin))
            for name, (begin, end) in zip(self.shares, pairwise(ends), strict=True)
        }

    def reset(self, task: Task) -> None:
        if task.world not in self.worlds:
            raise ValueError(f"task {task.task_id} is of none of the worlds {', '.join(self.worlds)}")
        self._name, self.world = task.world, self.worlds[task.world].fork()
        self.world.reset(task.data["task"])
        self._drawn = True

    @property
    def forkable(self) -> bool:  # type: ignore[override]
        return all(world.forkable for world in self.worlds.values())

    @property
    def begins_at_reset(self) -> bool:  # type: ignore[override]
        """Of the task's world; of all of them before :meth:`reset`."""
        worlds = [self.world] if self._drawn else self.worlds.values()
        return all(world.begins_at_reset for world in worlds)

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        if all(world.begins_at_reset for world in self.worlds.values()):
            return super().stages
        return tuple((each,) for each in self.agents)

    def state_key(self) -> Hashable:
        return self._name, self.world.state_key()

    def anchor_key(self, agent: str) -> Hashable | None:
        key = self.world.anchor_key(agent)
        return None if key is None else (self._name, key)

    async def open(self) -> Mapping[str, bool | int | str]:
        opened = {name: await world.open() for name, world in self.worlds.items()}
        return {f"{name}/{key}": value for name, facts in opened.items() for key, value in facts.items()}

    async def close(self) -> None:
        for world in self.worlds.values():
            await world.close()

    @property
    def has_demonstrations(self) -> bool:
        return all(world.has_demonstrations for world in self.worlds.values())

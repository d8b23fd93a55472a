"""Steps per second of each world's laptop variant on one core, without a model.

python bench/world_speed.py                      # 10 seconds of CPU time per world
python bench/world_speed.py --only sokoban,code --seconds 2

Episodes of novices' messages, one at a time: ``reset``, every agent's ``observe``, and ``step``; the time in which the
messages are made is not counted.  The time is the CPU time of this process: programs run in the sandbox's own.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from random import Random

from troupe.envs.base import TeamEnv
from troupe.envs.code import MicroCode
from troupe.envs.code_collab import MicroCollab
from troupe.envs.couplet.world import Couplet
from troupe.envs.delegation import Delegation
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.sudoku import Sudoku
from troupe.envs.search import FactSearch
from troupe.envs.signalling.world import Signalling
from troupe.envs.writing import Writing
from troupe.experience import Task
from troupe.sandbox import LocalSandbox

WORLDS: dict[str, Callable[[LocalSandbox], TeamEnv]] = {
    "sokoban": lambda sandbox: Sokoban(),
    "plan_path": lambda sandbox: PlanPath(),
    "sudoku": lambda sandbox: Sudoku(),
    "couplet": lambda sandbox: Couplet(),
    "signalling": lambda sandbox: Signalling(),
    "delegation": lambda sandbox: Delegation(),
    "search": lambda sandbox: FactSearch(),
    "writing": lambda sandbox: Writing(on_topic=1.0),
    "code": lambda sandbox: MicroCode(sandbox),
    "code_collab": lambda sandbox: MicroCollab(sandbox),
}
TASKS = 256


async def steps_per_second(world: TeamEnv, seconds: float) -> float:
    """Of ``seconds`` of CPU time, or of three times as much by the clock, after one episode."""
    tasks, rng = world.tasks("train", TASKS, 0), Random(0)
    await _episode(world, tasks[0], rng)
    steps, taken, start = 0, 0.0, time.monotonic()
    while taken < seconds and time.monotonic() - start < 3 * seconds:
        more, cpu = await _episode(world, rng.choice(tasks), rng)
        steps, taken = steps + more, taken + cpu
    return steps / taken


async def _episode(world: TeamEnv, task: Task, rng: Random) -> tuple[int, float]:
    """Its steps, and their CPU time."""
    env, steps, cpu, before = world.fork(), 0, 0.0, time.process_time()
    env.reset(task)
    while acting := env.next_agents():
        for agent in acting:
            env.observe(agent)
        cpu += time.process_time() - before
        texts = {agent: env.demonstration(agent, rng, skill="novice") for agent in acting}
        before = time.process_time()
        await env.step(texts)
        steps += 1
    return steps, cpu + time.process_time() - before


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time per world, at least")
    parser.add_argument("--only", default=",".join(WORLDS), help="names, separated by commas")
    options = parser.parse_args()
    sandbox = LocalSandbox(workers=1)
    print("| world | steps per second |\n| --- | --- |")
    try:
        for name in options.only.split(","):
            print(f"| `{name}` | {await steps_per_second(WORLDS[name](sandbox), options.seconds):,.0f} |", flush=True)
    finally:
        await sandbox.close()


if __name__ == "__main__":
    asyncio.run(main())

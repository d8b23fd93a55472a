"""docs/worlds.md tells the truth: its examples, its cheats, its world."""

import re
from pathlib import Path
from random import Random

from troupe.envs.plan_path import PlanPath
from troupe.envs.sokoban import Sokoban
from troupe.envs.testing import check_world

PAGE = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text(encoding="utf-8")
WORLDS = {"Sokoban": Sokoban, "PlanPath": PlanPath}


async def test_the_examples_are_real() -> None:
    examples = re.findall(r"<!-- example: (\w+) (\w+) (\d+) (\d+) (\S+) -->\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    for kind, split, count, seed, task_id, dialogue in examples:
        world = WORLDS[kind]()
        (task,) = [task for task in world.tasks(split, int(count), int(seed)) if task.task_id == task_id]
        world.reset(task)
        lines = [re.split(" {2,}", line) for line in dialogue.splitlines()]
        for (who, told), (author, said) in zip(lines[::2], lines[1::2], strict=True):
            (agent,) = world.next_agents()
            assert (who, author) == (f"{agent} sees", f"{agent} says")
            assert world.observe(agent) == [
                {"role": "system", "content": f"{agent} {world.name}"},
                {"role": "user", "content": told},
            ]
            assert {world.demonstration(agent, Random(seed)) for seed in range(9)} >= {said}
            result = await world.step({agent: said})
        assert result.success


def test_every_cheat_is_tried_and_told() -> None:
    table = PAGE[PAGE.index("## Cheats") : PAGE.index("## A world of your own")]
    rows = [row.split("|")[-2] for row in table.splitlines() if row.startswith("| ")]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    tried = re.findall(r"def test_(\w+)", (Path(__file__).parent / "test_cheats.py").read_text(encoding="utf-8"))
    assert told == set(tried)


async def test_the_world_of_your_own_keeps_the_contract() -> None:
    (source,) = re.findall(r"<!-- a world -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    module: dict = {}
    exec(source.replace("from ..", "from troupe.").replace("from .", "from troupe.envs."), module)
    await check_world(module["Relay"](), solved=1.0)

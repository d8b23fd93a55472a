"""docs/worlds/ and docs/add_a_world.md agree with the code: examples, tables of reward hacking, one whole world."""

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from troupe.envs.base import TeamEnv
from troupe.envs.code import MicroCode
from troupe.envs.code_collab import MicroCollab
from troupe.envs.couplet.world import Couplet
from troupe.envs.delegation import Delegation
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.sudoku import Sudoku
from troupe.envs.math import Arithmetic
from troupe.envs.search import FactSearch
from troupe.envs.signalling.world import Signalling
from troupe.envs.testing import check_world
from troupe.envs.writing import Writing
from troupe.sandbox import LocalSandbox

DOCS = Path(__file__).parents[2] / "docs"
WORLDS: dict[str, Callable[[], TeamEnv]] = {
    "Sokoban": Sokoban,
    "PlanPath": PlanPath,
    "Sudoku": Sudoku,
    "Couplet": Couplet,
    "Delegation": lambda: Delegation(order="sequential"),
    "FactSearch": FactSearch,
    "Signalling": Signalling,
    "Writing": lambda: Writing(on_topic=1.0),
    "Arithmetic": lambda: Arithmetic(sandbox=LocalSandbox(workers=1)),
    "MicroCode": lambda: MicroCode(LocalSandbox(workers=1)),
    "MicroCollab": lambda: MicroCollab(LocalSandbox(workers=1)),
}


def text(pattern: str) -> str:
    """Of the pages in docs/ that ``pattern`` names."""
    return "".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.glob(pattern)))


async def test_the_examples_are_real() -> None:
    pattern = r"<!-- example: (\w+) (\w+) (\d+) (\d+) (\S+) -->\n```text\n(.*?)```"
    examples = re.findall(pattern, text("worlds/*.md"), re.DOTALL)
    assert {kind for kind, *_ in examples} == WORLDS.keys()
    for kind, split, count, seed, task_id, dialogue in examples:
        world = WORLDS[kind]()
        (task,) = [task for task in world.tasks(split, int(count), int(seed)) if task.task_id == task_id]
        world.reset(task)
        lines = iter(re.split(" {2,}", line) for line in dialogue.splitlines())
        while acting := world.next_agents():
            actions = {agent: message(world, agent, next(lines), next(lines)) for agent in acting}
            result = await world.step(actions)
        assert result.success and not [*lines]
        await world.close()


def message(world: Any, agent: str, sees: list[str], says: list[str]) -> str:
    """The message of ``agent`` on the page, after a check that a demonstrator with this prompt might write it."""
    assert (sees[0], says[0]) == (f"{agent} sees", f"{agent} says")
    assert world.observe(agent) == [
        {"role": "system", "content": f"{agent} {world.name}"},
        {"role": "user", "content": sees[1]},
    ]
    assert says[1] in {world.demonstration(agent, Random(seed)) for seed in range(9)}
    return says[1]


def test_every_test_of_reward_hacking_is_on_a_page() -> None:
    table = text("worlds/reward_hacking*.md")
    rows = [row.split("|")[-2] for row in table.splitlines() if row.startswith("| ")]
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    files = Path(__file__).parent.rglob("test_*reward_hacking.py")
    tests = {name for file in files for name in re.findall(r"def test_(\w+)", file.read_text(encoding="utf-8"))}
    assert names == tests


async def test_the_world_of_your_own_keeps_the_contract() -> None:
    (source,) = re.findall(r"<!-- a world -->\n```python\n(.*?)```", text("add_a_world.md"), re.DOTALL)
    module: dict = {}
    exec(source.replace("from ..", "from troupe.").replace("from .", "from troupe.envs."), module)
    await check_world(module["Relay"](), solved=1.0)

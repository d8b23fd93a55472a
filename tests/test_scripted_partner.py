"""A role that learns alone: the world's demonstrator, or nobody, speaks for its partner."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from troupe.cli import train
from troupe.envs.base import TeamEnv
from troupe.envs.grid.plan_path import PlanPath
from troupe.errors import ConfigError
from troupe.experience import Sampling
from troupe.models.bases.base_models import base_path
from troupe.models.bases.loading import checkpoint_weights
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.scripted import NoEngine, ScriptedClient
from troupe.setup.checks import checked
from troupe.setup.dry_run import plan, tables

from .asked import evaluated

Composed = Callable[..., DictConfig]
SMALL = [
    *("loop.iterations=1", "loop.tasks_per_iteration=3", "loop.eval_every=1", "loop.validation_tasks=3"),
    *("loop.test_tasks=3", "env.horizon=2"),
]
SCRIPTED = ["experiment=sokoban_specialized", "policy@policies.tool=[laptop,scripted]"]


def ask(run_dir: Path, *words: str) -> dict[str, Any]:
    """The summary of an evaluation of the run's last weights as they were sampled."""
    path = evaluated(run_dir, "temperature=own", "checkpoint=last", *words).path
    found: dict[str, Any] = json.loads((path / "summary.json").read_text())["conditions"]["sampled"]
    return found


@pytest.mark.slow
def test_a_planner_learns_beside_a_demonstrator(composed: Composed, tmp_path: Path) -> None:
    loop = train.build(composed(*SCRIPTED, *SMALL, f"run_dir={tmp_path / 'run'}"))
    train.train(loop)
    path = loop.directory.path
    assert {file.parent.name for file in (path / "checkpoints" / "last").glob("*/training.pt")} == {"plan"}
    before, after = checkpoint_weights(base_path("laptop")), checkpoint_weights(path / "checkpoints" / "last" / "plan")
    assert not all(torch.equal(before[name], after[name]) for name in before)
    (row,) = (json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines())
    assert row["rollout/plan/tokens_per_message"] > 0 and "rollout/tool/tokens_per_message" not in row
    assert not [key for key in row if key.startswith("train/tool/")]
    told = json.loads((path / "summary.json").read_text())
    names = ("success", "turns", "tokens", "tool/reward", "plan/reward")
    found = ask(path)
    assert {name: found[name] for name in names} == {name: told[f"eval/{name}"] for name in names}
    assert found["tool/reward"] > ask(path, "silence=[tool]")["tool/reward"] == 0


@pytest.mark.parametrize("world", ["couplet", "signalling"])
async def test_one_role_of_other_worlds(composed: Composed, tmp_path: Path, world: str) -> None:
    """Agents that act at once, and a first agent that learns beside a silent second one."""
    first, second = {"couplet": ("first", "second"), "signalling": ("sender", "receiver")}[world]
    skill = "novice" if world == "couplet" else "silent"
    words = [f"policy@policies.{second}=[laptop_{world},scripted]", f"policies.{second}.skill={skill}"]
    sizes = [word for word in SMALL if "test_tasks" not in word]
    loop = train.build(composed(f"experiment={world}_specialized", *words, *sizes, f"run_dir={tmp_path / 'run'}"))
    try:
        episodes = await loop.collect()
        loop.credit(episodes)
        said = {node.agent: [c.completion for c in node.candidates] for ep in episodes for node, _ in ep.candidates()}
        assert said.keys() == {first, second}
        assert all(each.text_only and bool(each.text) == (skill != "silent") for each in said[second])
        assert set(loop.router.route(episodes, loop.credit.key, loop.credit.weight)) == {first}
    finally:
        await loop.team.close()


async def test_messages_follow_from_the_seed() -> None:
    world = PlanPath()
    (task,) = world.tasks("train", 1, 0)
    world.reset(task)

    async def said(seed: int, skill: Any = "flawed") -> list[str]:
        client = ScriptedClient("p", NoEngine(), ChatCodec(), 10**6, Sampling(), skill=skill)
        completions = (await client.complete(world, "tool", task, 4, seed, ())).completions
        return [completion.text for completion in completions]

    assert await said(1) == await said(1) != await said(2)
    assert len(set(await said(1))) > 1
    assert await said(1, "silent") == [""] * 4
    assert (await said(1, "expert"))[2] == world.demonstration("tool", Random("1/2"))


MISTAKES = {
    "a skill that nobody has": (
        [*SCRIPTED, "policies.tool.skill=exprt"],
        r"policies\.tool\.skill=exprt is unknown.*expert",
    ),
    "a base": (
        [*SCRIPTED, "policies.tool.base=laptop"],
        r"policies\.tool\.base does not apply with policies\.tool\.tuning=scripted",
    ),
    "a centralised critic": (
        [*SCRIPTED, "algorithm=maac"],
        "of the scripted policy 'tool' no tokens are known",
    ),
    "more candidates than rows, beside one who needs none": (
        ["policy@policies.plan=[laptop,scripted]", "algorithm.sampler.k=8", "engine.max_batch_rows=4"],
        r"algorithm\.sampler\.k=8 is more than engine\.max_batch_rows=4",
    ),
    "nobody who learns": (
        [*SCRIPTED, "policy@policies.plan=[laptop,scripted]"],
        "no policy learns: tool, plan are frozen, remote or scripted",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_a_scripted_policy_does_not_have(composed: Composed, mistake: str) -> None:
    words, message = MISTAKES[mistake]
    with pytest.raises((ConfigError, ValueError), match=message):
        checked(composed(*words, *SMALL, "run_dir=nowhere"))


def test_a_world_without_demonstrations(composed: Composed, monkeypatch: pytest.MonkeyPatch) -> None:
    from troupe.envs.grid.sokoban import Sokoban

    monkeypatch.setattr(Sokoban, "demonstration", TeamEnv.demonstration)
    with pytest.raises(ConfigError, match=r"policies\.tool\.tuning=scripted: Sokoban has no demonstrations; give"):
        checked(composed(*SCRIPTED, *SMALL, "run_dir=nowhere"))
    checked(composed(*SCRIPTED, *SMALL, "policies.tool.skill=silent", "run_dir=nowhere"))


def test_a_dry_run_says_who_is_scripted(composed: Composed) -> None:
    parts, _ = checked(composed(*SCRIPTED, *SMALL, "run_dir=nowhere"))
    found = plan(parts)
    assert [pool.policy for pool in found.pools] == ["plan"]
    assert "tool (tool) is scripted: skill expert of the world's demonstrator" in tables(found)


def test_scripted_policies_have_no_engine() -> None:
    from troupe.experience import Request

    with pytest.raises(ValueError, match="policy 'p' is scripted: it answers no prompt"):
        asyncio.run(NoEngine().generate(Request("p", (1,), 1, Sampling(), 0)))
    with pytest.raises(ValueError, match="policy 'p' is scripted: it is never trained"):
        asyncio.run(NoEngine().load("p", {}, 1))

"""A small team in which a server speaks for the tool agent and the planner learns: trained, continued, evaluated."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from troupe.cli import train
from troupe.errors import LostEpisodesError
from troupe.loop import TrainLoop
from troupe.models.bases.base_models import base_path
from troupe.models.bases.loading import checkpoint_weights
from troupe.runs.run import RunReader
from troupe.setup.checks import checked
from troupe.setup.dry_run import plan, tables

from .asked import evaluated, rows, summary

SMALL = [
    "experiment=sokoban_specialized",
    "policy@policies.tool=[laptop,remote]",
    "policies.tool.remote.model=m",
    "policies.tool.remote.retries=0",
    "policies.tool.remote.prompt_price=1",
    "policies.tool.remote.completion_price=5",
    "loop.iterations=2",
    "loop.tasks_per_iteration=3",
    "loop.eval_every=1",
    "loop.validation_tasks=3",
    "loop.test_tasks=3",
    "loop.checkpoint.every=1",
    "env.horizon=2",
]
Build = Callable[..., TrainLoop]


def script(messages: list[dict[str, str]], seed: int) -> str:
    """A proposal, or something that is none, as the seed will have it."""
    return ["R R", "U L", "D", "I should say: push! ünd <b>", ""][seed % 5]


@pytest.fixture
def build(chat_server: Any, composed: Callable[..., DictConfig], tmp_path: Path) -> Build:
    """``build("NAME", "key=value", ...)``: the run in ``tmp_path / NAME``, not begun."""
    chat_server.script = script

    def new(name: str, *overrides: str) -> TrainLoop:
        url = f"policies.tool.remote.url={chat_server.url}"
        return train.build(composed(*SMALL, url, *overrides, f"run_dir={tmp_path / name}"))

    return new


def server(run_dir: Path) -> str:
    """The server that the run names."""
    return str(RunReader(run_dir).config["policies"]["tool"]["remote"]["url"])


def ask(run_dir: Path, *words: str) -> Path:
    return evaluated(run_dir, "temperature=own", f"trust=[{server(run_dir)}]", *words).path


@pytest.mark.slow
def test_a_run_beside_a_server_and_its_evaluation(build: Build, chat_server: Any) -> None:
    loop = build("run")
    train.train(loop)
    path, told = loop.directory.path, summary(loop.directory.path)
    assert {file.parent.name for file in (path / "checkpoints" / "last").glob("*/training.pt")} == {"plan"}
    before = checkpoint_weights(base_path("laptop"))
    after = checkpoint_weights(path / "checkpoints" / "last" / "plan")
    assert not all(torch.equal(before[name], after[name]) for name in before)
    for row in rows(path):
        assert row["remote/tool/requests"] > 0 and row["remote/tool/retries"] == row["remote/tool/unmetered"] == 0
        assert row["rollout/plan/tokens_per_message"] > 0 and "rollout/tool/tokens_per_message" not in row
        assert not [key for key in row if key.startswith("train/tool/")]
    # The totals are all that was asked, evaluations included; a request's answer is billed as the server does.
    asked = len(chat_server.seen)
    assert told["remote/tool/requests"] == asked > sum(row["remote/tool/requests"] for row in rows(path))
    assert told["remote/tool/prompt_tokens"] == 10 * asked
    tokens = 2 * sum(body["n"] for body in chat_server.seen)
    assert told["remote/tool/completion_tokens"] == tokens
    assert told["remote/tool/cost"] == pytest.approx((10 * asked + 5 * tokens) / 1e6)
    # Who asks again hears the same, at every checkpoint.
    for checkpoint, key in (("last", "eval"), ("base", "eval_before")):
        chat_server.seen.clear()
        found = json.loads((ask(path, f"checkpoint={checkpoint}") / "summary.json").read_text())
        sampled = found["conditions"]["sampled"]
        names = ("success", "turns", "tokens", "prompt_tokens", "tool/reward", "plan/reward")
        assert {name: sampled[name] for name in names} == {name: told[f"{key}/{name}"] for name in names}
        assert found["remote/tool/requests"] == len(chat_server.seen) > 0
    chat_server.seen.clear()
    first = ask(path, "checkpoint=last")
    assert ask(path, "checkpoint=last", f"agents.tool={path}") == first
    assert not chat_server.seen  # it was found, by the server's and the weights' identity
    ask(path, "checkpoint=last", "silence=[tool]")
    assert not chat_server.seen


@pytest.mark.slow
def test_a_server_that_is_gone_ends_a_run_that_goes_on_later(
    build: Build, composed: Callable[..., DictConfig], chat_server: Any, fault: Callable[..., Any]
) -> None:
    straight = build("straight")
    train.train(straight)
    cut = build("cut")
    real = cut.run_iteration

    async def run_iteration() -> dict[str, Any]:
        if cut.progress.iteration == 1:
            chat_server.faults.extend([None, fault(status=503)])
        return await real()

    cut.run_iteration = run_iteration  # type: ignore[method-assign]
    with pytest.raises(LostEpisodesError, match=rf"policy 'tool' at {chat_server.url}: HTTP 503"):
        train.train(cut)
    path = cut.directory.path
    said = json.loads((path / "summary.json").read_text())
    assert said["status"] == "failed" and said["error"].startswith("LostEpisodesError: 1 of 6 episodes are lost")
    assert len(rows(path)) == 1
    chat_server.faults.clear()
    # How words are fetched may change, the words' origin may not.
    trust = f"trust=[{server(path)}]"
    with pytest.raises(ValueError, match=r"policies\.tool\.remote\.model \('m' in the run, 'other' here\)"):
        train.build(composed(f"resume={path}", trust, "+policies.tool.remote.model=other"))
    train.train(train.build(composed(f"resume={path}", trust, "+policies.tool.remote.concurrency=2")))
    assert rows(path) == rows(straight.directory.path)
    weights = [checkpoint_weights(each / "checkpoints" / "last" / "plan") for each in (path, straight.directory.path)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    one, two = summary(path), summary(straight.directory.path)
    mine = [key for key in two if not key.startswith("remote/")]
    assert {key: one[key] for key in mine} == {key: two[key] for key in mine}


@pytest.mark.parametrize("algorithm", ["mas_grpo", "magrpo"])
def test_groups_that_mix_who_learns_and_who_does_not(build: Build, algorithm: str) -> None:
    """Credit is given on whole episodes, whoever speaks; only the planner's messages are learnt from."""
    loop = build("run", f"algorithm={algorithm}", "algorithm.sampler.k=2", "env.horizon=1")

    async def once() -> dict[str, Any]:
        episodes = await loop.collect()
        loop.credit(episodes)
        spoken = [(node.agent, candidate) for episode in episodes for node, candidate in episode.candidates()]
        assert {agent for agent, _ in spoken} == {"tool", "plan"}
        assert all(candidate.advantage is not None for _, candidate in spoken)
        batches = loop.router.route(episodes, loop.credit.key, loop.credit.weight)
        assert set(batches) == {"plan"}
        assert all(sample.token_ids for group in batches["plan"] for sample in group)
        try:
            return await loop.run_iteration()
        finally:
            for engine in loop.team.engines.values():
                await engine.close()

    assert asyncio.run(once())["train/plan/loss"] is not None


def test_a_dry_run_asks_nobody(composed: Callable[..., DictConfig], chat_server: Any) -> None:
    cfg = composed(*SMALL, f"policies.tool.remote.url={chat_server.url}", "run_dir=nowhere")
    parts, lacks = checked(cfg)
    found = plan(parts)
    assert not lacks
    assert [pool.policy for pool in found.pools] == ["plan"]
    (remote,) = found.remote
    # 3 tasks, 4 candidates, 2 turns; messages of at most 40 tokens.
    assert (remote.policy, remote.agents, remote.completions, remote.tokens) == ("tool", ("tool",), 24, 960)
    (said,) = [part for part in tables(found) if isinstance(part, str) and "speaks through" in part]
    assert f"tool (tool) speaks through {chat_server.url}, model m: at most 24 completions of 960 tokens" in said
    assert "cost 0.0048 and their prompts" in said
    assert not chat_server.seen

"""The critics of a run: which there are, what is refused, every regime with one, and a run that is continued."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from troupe.cli import train
from troupe.errors import ConfigError
from troupe.setup.checks import checked
from troupe.setup.dry_run import plan
from troupe.setup.parts import Parts, parts_of, plain

Composed = Callable[..., DictConfig]
SMALL = [
    "experiment=sokoban_specialized",
    "loop.tasks_per_iteration=2",
    "loop.validation_tasks=2",
    "loop.test_tasks=2",
    "loop.eval_every=9",
    "env.horizon=2",
    "algorithm.sampler.k=2",
]
REMOTE = ["policy@policies.tool=[laptop,remote]", "policies.tool.remote={url: 'http://127.0.0.1:9/v1', model: m}"]


@pytest.fixture
def parts(composed: Composed, tmp_path: Path) -> Callable[..., Parts]:
    def build(*overrides: str) -> Parts:
        cfg = composed(*SMALL, f"run_dir={tmp_path / 'run'}", *overrides)
        return parts_of(plain(cfg), OmegaConf.to_yaml(cfg, resolve=False))

    return build


@pytest.mark.parametrize(
    ("overrides", "critics"),
    [
        (["algorithm=maac"], {"team": ("tool", "plan")}),
        (["algorithm=iac"], {"tool": ("tool",), "plan": ("plan",)}),
        (["algorithm=iac", "regime=lora"], {"tool": ("tool",), "plan": ("plan",)}),
        (["algorithm=iac", "regime=shared"], {"shared": ("shared",)}),
        (["algorithm=iac", "policy@policies.tool=[laptop,frozen]"], {"plan": ("plan",)}),
        (["algorithm=maac", "policy@policies.tool=[laptop,frozen]"], {"team": ("tool", "plan")}),
        (["algorithm=iac", *REMOTE], {"plan": ("plan",)}),
        (["algorithm=grpo"], {}),
    ],
)
def test_who_has_a_critic(parts: Callable[..., Parts], overrides: list[str], critics: dict[str, Any]) -> None:
    assert {name: spec.policies for name, spec in parts(*overrides).critics.items()} == critics


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm=maac", "~algorithm.critic"], r"algorithm\.critic is missing: .*\(Maac\) needs values"),
        (
            ["algorithm=grpo", "+algorithm.critic={base: null, optimizer: {_target_: torch.optim.AdamW, lr: 0.1}}"],
            r"algorithm\.critic has no effect",
        ),
        (["algorithm=iac", "algorithm.sampler.resample=1"], r"sampler\.resample=1 has no effect"),
        (["algorithm=maac", "strategy=ddp"], "a critic learns in one process so far"),
        (["algorithm=reinforce_pp", "algorithm.objective.kl=0.1", "strategy=fsdp2"], "a reference cannot be sharded"),
        (["algorithm=maac", *REMOTE], "of the remote policy 'tool' no tokens are known"),
        (["algorithm=maac", "policies.tool.base=laptop_math"], r"critic\.base is null, but .* laptop_math, laptop"),
        (
            ["algorithm=maac", "algorithm.critic.epochs=0"],
            r"algorithm\.critic\.epochs must be .* at least 1",
        ),
        (["algorithm=maac", "+algorithm.critic.clip=1"], r"algorithm\.critic\.clip is an unknown key"),
        (["algorithm=maac", "algorithm.credit.gae_lambda=2"], r"algorithm\.credit\.gae_lambda must be in \[0, 1\]"),
    ],
)
def test_what_does_not_fit_is_refused(parts: Callable[..., Parts], overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parts(*overrides)


def test_a_critic_of_another_vocabulary_is_refused(composed: Composed, tmp_path: Path) -> None:
    words = ["algorithm=iac", "algorithm.critic.base=laptop_math", f"run_dir={tmp_path / 'run'}"]
    with pytest.raises(ConfigError, match=r"critic\.base=laptop_math cannot read the tokens of policy 'tool'"):
        checked(composed(*SMALL, *words))


def test_a_dry_run_counts_a_critic(parts: Callable[..., Parts]) -> None:
    tool, _, critic = plan(parts("algorithm=maac")).pools
    assert (critic.policy, critic.agents) == ("critic team", ("tool", "plan"))
    # The base's head is that of its embeddings; a critic's is one number per hidden unit, and one.
    hidden = 128
    assert critic.parameters == critic.trained == tool.parameters + hidden + 1
    assert (critic.memory.optimizer, critic.memory.engine) == (8 * critic.trained, 0)


@pytest.mark.slow
def test_an_iteration_of_adapters(composed: Composed, tmp_path: Path) -> None:
    loop = train.build(composed(*SMALL, f"run_dir={tmp_path / 'run'}", "algorithm=iac", "regime=lora"))

    async def once() -> dict[str, Any]:
        try:
            return await loop.run_iteration()
        finally:
            for engine in loop.team.distinct_engines():
                await engine.close()

    row = asyncio.run(once())
    for name, critic in loop.team.critics.by_name.items():
        assert critic.version == 1 and row[f"critic/{name}/value_loss"] > 0
        assert row[f"critic/{name}/value"] == 0.0  # a new head
        assert critic.evaluate([(5, 6)]) != [0.0]


def last(path: Path) -> Any:
    return torch.load(path / "checkpoints" / "last" / "critics" / "team" / "training.pt", weights_only=True)


@pytest.mark.slow
def test_a_continued_run_has_the_same_bits(composed: Composed, tmp_path: Path) -> None:
    words = [*SMALL, "algorithm=maac", "regime=shared"]
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    train.run(composed(*words, "loop.iterations=2", f"run_dir={straight}"))
    train.run(composed(*words, "loop.iterations=1", f"run_dir={stopped}"))
    assert last(stopped)["version"] == 1
    train.run(composed(f"resume={stopped}", "loop.iterations=2"))
    one, other = ((path / "metrics.jsonl").read_text().splitlines()[-1] for path in (straight, stopped))
    untimed = [{k: v for k, v in json.loads(row).items() if not k.endswith("_s")} for row in (one, other)]
    assert untimed[0] == untimed[1] and untimed[0]["critic/team/value"] != 0
    weights, again = last(straight)["model"], last(stopped)["model"]
    assert last(straight)["version"] == 2
    assert all(torch.equal(weights[name], again[name]) for name in weights)

"""Each section refuses what is wrong in it, by its key; composed once, and changed as a command line would."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from troupe.setup.checks import check
from troupe.setup.parts import parts_of
from troupe.setup.sections import read_config

GONE = ...  # of which the repr is the same in all test processes
POLICY = "policies.tool"
TRAIN = f"{POLICY}.sampling.train"


@pytest.fixture(scope="module")
def config(composed: Callable[..., DictConfig]) -> dict[str, Any]:
    """Sokoban's, of specialised policies, in few tasks."""
    few = [f"loop.{key}=2" for key in ("tasks_per_iteration", "validation_tasks", "test_tasks")]
    cfg = composed("regime=specialized", "name=none", "run_dir=nowhere", *few)
    return OmegaConf.to_container(cfg, resolve=True)  # type: ignore[return-value]


def changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(config)
    for key, value in changes.items():
        *above, last = key.split(".")
        node = config
        for name in above:
            node = node[name]
        if value is GONE:
            del node[last]
        else:
            node[last] = value
    return config


SECTIONS = {
    "run": [
        ({"sed": 3}, r"^sed is an unknown key; did you mean seed\?"),
        ({"seed": GONE}, r"^seed is missing$"),
        ({"seed": -1}, r"^seed must be a whole number from 0 to 2\^32 - 1, got -1$"),
        ({"seed": 1 << 32}, r"^seed must be a whole number from 0 to 2\^32 - 1, got 4294967296$"),
        ({"threads": 0}, r"^threads must be a whole number from 1 to 1024, or null, got 0$"),
        ({"threads": 100000}, r"^threads must be a whole number from 1 to 1024, or null, got 100000$"),
        ({"env": 3}, r"^env must hold keys, got 3$"),
        ({"env.weights": [1, float("nan")]}, r"^env\.weights must be a finite number, got \[1, nan\]$"),
    ],
    "loop": [
        ({"loop.iteration": 3}, r"^loop\.iteration is an unknown key; did you mean iterations\?"),
        ({"loop.iterations": "many"}, r"^loop\.iterations must be a whole number, got 'many'$"),
        ({"loop.tasks_per_iteration": GONE}, r"^loop\.tasks_per_iteration is missing$"),
        ({"loop.tasks_per_iteration": 0}, r"^loop\.tasks_per_iteration must be a whole number of at least 1, got 0$"),
        ({"loop.eval_every": None}, r"^loop\.eval_every must be a whole number, got None$"),
        ({"loop.checkpoint": GONE}, r"^loop\.checkpoint is missing$"),
        ({"loop.checkpoint.evry": 1}, r"^loop\.checkpoint\.evry is an unknown key; did you mean every"),
    ],
    "algorithm": [
        ({"algorithm.credit": GONE}, r"^algorithm\.credit is missing$"),
        ({"algorithm.crdit": {}}, r"^algorithm\.crdit is an unknown key; did you mean credit"),
        ({"algorithm.update.steps": 4}, r"^algorithm\.update\.steps is an unknown key"),
        (
            {"algorithm.update.mini_batches": 0},
            r"^algorithm\.update\.mini_batches must be .* at least 1, got 0$",
        ),
        ({"algorithm.update.clip_norm": float("nan")}, r"^algorithm\.update\.clip_norm must be a finite number"),
    ],
    "policies": [
        ({f"{POLICY}.lr": 1}, r"^policies\.tool\.lr is an unknown key"),
        ({f"{POLICY}.tuning": "qlora"}, r"^policies\.tool\.tuning=qlora is unknown; did you mean lora\?"),
        ({f"{POLICY}.tuning": "lora", f"{POLICY}.lora": {"r": 0}}, r"^policies\.tool\.lora"),
        ({f"{POLICY}.sampling": GONE}, r"^policies\.tool\.sampling is missing$"),
        ({f"{POLICY}.chat": "hot"}, r"^policies\.tool\.chat must hold keys, got 'hot'$"),
        ({f"{POLICY}.sampling": "hot"}, r"^policies\.tool\.sampling must hold keys, got 'hot'$"),
        ({f"{POLICY}.sampling.test": {}}, r"^policies\.tool\.sampling\.test is an unknown key"),
        ({f"{TRAIN}.top_p": 1.5}, r"^policies\.tool\.sampling\.train.*top_p must be in \(0, 1\], got 1\.5$"),
        ({"policies.plan.sampling.eval.temperature": -1}, r"^policies\.plan\.sampling\.eval.*temperature"),
        ({f"{POLICY}.optimizer.lr": float("inf")}, r"^policies\.tool\.optimizer\.lr must be a finite number, got inf$"),
        (
            {f"{POLICY}.schedule.alternate": {"every": 1, "turn": 0, "evry": 1}},
            r"^policies\.tool\.schedule\.alternate\.evry is an unknown",
        ),
    ],
    "logger": [({"logger": {"csv": 1}}, r"^logger\.csv must hold keys, got 1$")],
}
"""By section: changes, and the answer to them."""

PARTS = [
    ({"env.with_monsters": True}, r"^env\.with_monsters is an unknown key"),
    ({"env.size": 3}, r"^env.*size.*3"),
    ({"algorithm.sampler.candidates": 4}, r"^algorithm\.sampler\.candidates is an unknown key"),
    ({"algorithm.sampler.team": "own"}, r"^algorithm\.sampler\.team is no key; give algorithm\.reward\.team$"),
    ({"strategy.gpus": 2}, r"^strategy\.gpus is an unknown key"),
    ({f"{POLICY}.optimizer.learning_rate": 1}, r"^policies\.tool\.optimizer\.learning_rate is an unknown key"),
    ({f"{POLICY}.optimizer._target_": "torch.optim.Adamm"}, r"^policies\.tool\.optimizer.*torch\.optim\.Adamm"),
    ({f"{POLICY}.scheduler.warm": 1}, r"^policies\.tool\.scheduler\.warm is an unknown key"),
    ({f"{TRAIN}.temperature": 0}, r"^policies\.tool\.sampling\.train\.temperature=0 is greedy"),
    ({"team.plan": GONE}, r"agent 'plan' has no policy"),
    ({"team.plan": "planner"}, r"'plan'.*'planner'.*tool, plan"),
    ({"team.plan": "tool"}, r"policy 'plan' is used by no agent"),
    ({"env.team": "solo"}, r"agent 'solo' has no policy"),
    (
        {
            f"algorithm.objective.{key}": value
            for key, value in {"kl": 0.1, "kl_estimator": "k1", "kl_in": "credit"}.items()
        },
        r"algorithm\.credit\.kl=0\.0, but the objective of policy 'tool' has kl=0\.1",
    ),
]
MACHINE = [
    ({"engine.quantised": True}, r"^engine\.quantised is an unknown key"),
    ({"strategy.accelerator": "tpu"}, r"^strategy"),
    ({f"{POLICY}.base": "./nowhere"}, r"^policies\.tool\.base=\./nowhere"),
    (
        {"policies.plan.chat": {"enable_thinking": False}},
        r"^policies\.plan\.chat\.enable_thinking: the chat template of",
    ),
    ({f"{TRAIN}.max_tokens": 512}, r"^policies\.tool\.sampling\.train\.max_tokens=512 .*512 tokens$"),
    ({f"{TRAIN}.max_tokens": 505}, r"agent 'tool'.*up to 505 new ones.*policy 'tool' \(512 tokens\)"),
    (
        {"logger": {"csv": {"_target_": "troupe.runs.loggers.CsvLogger", "sep": "x"}}},
        r"^logger\.csv\.sep is an unknown key",
    ),
    (
        {"env.size": 4, "env.inner_walls": 0, "env.min_moves": 1},
        r"^loop\.tasks_per_iteration: sokoban: found only .* of 1 different train tasks",
    ),
]


@pytest.mark.parametrize(
    ("changes", "message"),
    [pytest.param(*case, id=f"{name} {case[0]}") for name in SECTIONS for case in SECTIONS[name]],
)
def test_a_section(config: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_config(changed(config, changes), None)


@pytest.mark.parametrize(("changes", "message"), PARTS, ids=str)
def test_the_parts(config: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parts_of(changed(config, changes), None)


@pytest.mark.parametrize(("changes", "message"), MACHINE, ids=str)
def test_what_needs_more_than_the_sections(config: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(parts_of(changed(config, changes), None), new=True)
    assert not Path("nowhere").exists()

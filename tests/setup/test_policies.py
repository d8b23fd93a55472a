"""What stands under `policies`, before any model is loaded."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from troupe.errors import ConfigError
from troupe.setup.checks import clients_of
from troupe.setup.parts import Parts, parts_of, warn
from troupe.setup.policies import backbones, check_names

Read = Callable[..., Parts]
REMOTE = ["policy@policies.tool=[laptop,remote]", "policies.tool.remote.model=m"]


@pytest.fixture
def read(composed: Callable[..., DictConfig]) -> Read:
    """``read("key=value", ...)``: the parts of a specialised team on Sokoban."""

    def parts(*overrides: str) -> Parts:
        cfg = composed("experiment=sokoban_specialized", "run_dir=nowhere", *overrides)
        config: Any = OmegaConf.to_container(cfg, resolve=True)
        return parts_of(config, OmegaConf.to_yaml(cfg, resolve=False))

    return parts


def test_what_a_policy_overrides_is_its_own(read: Read) -> None:
    found = read(
        "+policies.tool.algorithm.objective={clip: 0.1, kl: 0.05}",
        "+policies.tool.algorithm.update.mini_batches=2",
        "policies.plan.schedule.freeze_until=5",
        "policies.plan.sampling.train.temperature=0.8",
    ).policies
    tool, plan = found["tool"].train_config, found["plan"].train_config
    assert (tool.objective.clip, tool.objective.kl, tool.update.mini_batches) == (0.1, 0.05, 2)
    assert (plan.objective.clip, plan.objective.kl, plan.update.mini_batches) == (0.2, 0.0, 4)
    assert tool.update.max_tokens == plan.update.max_tokens == 8192
    assert (tool.temperature, plan.temperature) == (1.0, 0.8)
    assert (found["tool"].schedule.freeze_until, found["plan"].schedule.freeze_until) == (0, 5)


def test_another_objective_stands_alone(read: Read) -> None:
    name = "troupe.algorithms.objectives.PolicyGradient"
    found = read(f"+policies.tool.algorithm.objective={{_target_: {name}, normalisation: sequence_sum}}").policies
    assert type(found["tool"].train_config.objective).__name__ == "PolicyGradient"
    assert type(found["plan"].train_config.objective).__name__ == "ClippedObjective"


def test_who_shares_a_base(read: Read) -> None:
    groups = [[spec.name for spec in group] for group in backbones(read("regime=lora").policies)]
    assert groups == [["tool", "plan"]]
    groups = [
        [spec.name for spec in group] for group in backbones(read("regime=lora", "policies.plan.base=x").policies)
    ]
    assert groups == [["tool"], ["plan"]]
    frozen = [f"policies.tool.{key}=null" for key in ("optimizer", "scheduler")]
    parts = read("regime=specialized", "policies.tool.tuning=frozen", *frozen)
    assert [[spec.name for spec in group] for group in backbones(parts.policies)] == [["tool"], ["plan"]]
    assert parts.policies["tool"].train_config is None and parts.router.learning == ("plan",)


def test_an_opponent_with_past_weights_shares_no_model(read: Read) -> None:
    found = dict(read("experiment=kuhn_shared").policies)
    found["second"] = replace(found["opponent"], name="second")
    assert [[spec.name for spec in group] for group in backbones(found)] == [["shared"], ["opponent"], ["second"]]


def test_a_remote_policy(read: Read) -> None:
    parts = read(*REMOTE, "+policies.tool.remote.extra.chat_template_kwargs.enable_thinking=false")
    spec = parts.policies["tool"]
    assert (spec.base, spec.train_config, spec.schedule) == ("m", None, None) and spec.remote is not None
    assert spec.remote.identity == {
        "url": "http://localhost:8000/v1",
        "model": "m",
        "extra": {"chat_template_kwargs": {"enable_thinking": False}},
    }
    assert parts.router.learning == ("plan",)
    assert [[spec.name for spec in group] for group in backbones(parts.policies)] == [["plan"]]


MISTAKES = {
    "unknown tuning": (
        ["policies.tool.tuning=qlora"],
        "policies.tool.tuning=qlora is unknown.* Known: full, lora, frozen, past, remote, scripted",
    ),
    "a tuning that is no text": (["policies.tool.tuning=[a,b]"], r"policies\.tool\.tuning=\['a', 'b'\] is unknown"),
    "a remote policy that nobody speaks for": (
        [f"policies.tool.{key}=null" for key in ("base", "optimizer", "scheduler")] + ["policies.tool.tuning=remote"],
        "policies.tool.remote is missing",
    ),
    "a remote policy with a base": (
        [*REMOTE, "policies.tool.base=laptop"],
        "policies.tool.base does not apply with policies.tool.tuning=remote; give null",
    ),
    "a remote policy with an algorithm": (
        [*REMOTE, "+policies.tool.algorithm.update.epochs=2"],
        "policies.tool.algorithm does not apply with .*tuning=remote; give null",
    ),
    "a server without a model": (
        [*REMOTE, "~policies.tool.remote.model"],
        "policies.tool.remote.model is missing",
    ),
    "a server that is nowhere": ([*REMOTE, "policies.tool.remote.url=host"], "policies.tool.remote: url must be http"),
    "top_k for a server": (
        [*REMOTE, "policies.tool.sampling.eval.top_k=5"],
        r"policies.tool.sampling.eval.top_k=5: OpenAI's interface has no top_k; give 0",
    ),
    "a team of servers": (
        [*REMOTE, "policy@policies.plan=[laptop,remote]", "policies.plan.remote.model=m"],
        "no policy learns: tool, plan are frozen, remote or scripted",
    ),
    "a frozen policy with an optimizer": (
        ["policies.tool.tuning=frozen"],
        "policies.tool.optimizer does not apply with .*tuning=frozen; give",
    ),
    "no policy learns": (
        [f"+policies.{n}={{tuning: frozen, optimizer: null, scheduler: null}}" for n in ("tool", "plan")],
        "no policy learns: tool, plan are frozen, remote or scripted",
    ),
    "an adapter of a whole model": (
        ["+policies.tool.lora.r=4"],
        "policies.tool.lora does not apply with policies.tool.tuning=full; give null",
    ),
    "an adapter without settings": (["policies.tool.tuning=lora"], "policies.tool.lora is missing"),
    "a credit rule of one's own": (
        ["+policies.tool.algorithm.credit={}"],
        r"policies.tool.algorithm.credit is an unknown key\. Known: objective, update",
    ),
    "weights that the objective replaces": (
        ["algorithm=rloo", "algorithm.objective.normalisation=token_mean"],
        r"algorithm\.credit\.weight=episode has no effect .*token_mean \(policy 'tool'\)",
    ),
    "a strange key of an objective": (
        ["+policies.tool.algorithm.objective.clipp=1"],
        r"policies.tool.algorithm.objective.clipp is an unknown key; did you mean clip\?",
    ),
    "an objective of another kind": (
        ["policies.tool.algorithm.objective=${algorithm.sampler}"],
        r"policies.tool.algorithm.objective._target_=.*: a TreeSampler cannot stand here",
    ),
    "an update out of range": (
        ["+policies.tool.algorithm.update.epochs=0"],
        "policies.tool.algorithm.update: .*epochs must be a whole number of at least 1",
    ),
    "a strange key of a schedule": (
        ["+policies.tool.schedule.turns=2"],
        "policies.tool.schedule.turns is an unknown key",
    ),
    "a strange key of a turn": (
        ["policies.tool.schedule.alternate={every: 1, turn: 0, of: 2}"],
        "policies.tool.schedule.alternate.of is an unknown key",
    ),
    "a turn that no policy has": (
        ["policies.tool.schedule.alternate={every: 1, turn: 1}"],
        "no policy has turn 0 of 2",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_by_its_key(read: Read, mistake: str) -> None:
    overrides, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        read(*overrides)


def test_two_policies_do_not_write_one_path() -> None:
    with pytest.raises(ConfigError, match=r"policies\.Tool: checkpoints would write 'tool' and 'Tool' to one path"):
        check_names({"tool": {}, "Tool": {}})


@pytest.mark.parametrize("name", ["a/b", "..", "rng.pt", "", "a b"])
def test_names_that_are_no_folders(name: str) -> None:
    with pytest.raises(ConfigError, match="a policy's name is letters"):
        check_names({"tool": {}, name: {}})


def test_a_schedule_longer_than_the_run_is_said(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    words = [
        f"policies.{name}.schedule.alternate={{every: 20, turn: {turn}}}" for turn, name in enumerate(("tool", "plan"))
    ]
    with caplog.at_level(logging.WARNING):
        warn(read(*words, "loop.iterations=40"))
        assert not caplog.records
        warn(read(*words, "loop.iterations=20"))
        warn(read("policies.tool.schedule.freeze_until=40", "loop.iterations=40"))
    assert [record.getMessage() for record in caplog.records] == [
        "policies.plan.schedule: the policy learns in none of the run's 20 iterations",
        "policies.tool.schedule: the policy learns in none of the run's 40 iterations",
    ]


OF_TOOL = "policies.shared.sampling.agents.tool"
SHARED = ("regime=shared", f"+{OF_TOOL}.train.temperature=0.5", f"+{OF_TOOL}.train.max_tokens=60")


def test_agents_of_one_policy_are_sampled_apart(read: Read) -> None:
    parts = read(*SHARED, f"+{OF_TOOL}.eval.top_p=0.9", "algorithm=dr_grpo")
    spec = parts.policies["shared"]
    assert spec.sampling_of("plan") == (spec.train, spec.eval)
    train, evaluation = spec.sampling_of("tool")
    assert (train, evaluation) == (
        replace(spec.train, temperature=0.5, max_tokens=60),
        replace(spec.eval, top_p=0.9),
    )
    learns = spec.train_config
    assert learns is not None and (learns.temperature, learns.temperatures) == (1.0, {"tool": 0.5})
    assert learns.objective.length == 60  # of the longest that it may write
    clients = clients_of(parts.router.team, parts.policies, {})
    assert [client.sampling for client in clients["tool"]] == [train, evaluation]
    assert [client.sampling for client in clients["plan"]] == [spec.train, spec.eval]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["regime=shared", "+policies.shared.sampling.agents.tol.train.top_p=0.5"],
            r"agents\.tol: the policy does not",
        ),
        (["+policies.plan.sampling.agents.tool.train.top_p=0.5"], r"policies\.plan\.sampling\.agents\.tool: .*speak"),
        (["regime=shared", f"+{OF_TOOL}.train.temperature=0"], rf"{OF_TOOL}\.train\.temperature=0 is greedy"),
        (["regime=shared", f"+{OF_TOOL}.train.heat=1"], rf"{OF_TOOL}\.train\.heat is an unknown key"),
        (["regime=shared", f"+{OF_TOOL}.train.top_p=2"], r"top_p must be in \(0, 1\], got 2"),
        (["regime=shared", f"+{OF_TOOL}.test.top_p=1"], rf"{OF_TOOL}\.test is an unknown key"),
    ],
)
def test_samplings_of_agents_that_are_refused(read: Read, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(*words)


def test_an_agents_truncation_is_warned_of(read: Read, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn(read(*SHARED, f"+{OF_TOOL}.train.top_p=0.9"))
    assert f"{OF_TOOL}.train truncates (top_p=0.9" in caplog.text

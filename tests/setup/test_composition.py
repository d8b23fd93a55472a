"""Every regime in every world, the package's and the user's, through Hydra."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf

from troupe.cli import sweep
from troupe.cli.start import start
from troupe.envs.math.ensemble import members
from troupe.errors import ConfigError
from troupe.kernels import products
from troupe.setup.composition import all_choices, choices, configurations

from ..worlds import SETTINGS, WORLDS, slow_but

Composed = Callable[..., DictConfig]
WRITERS = {"writing": ("concise", "detailed"), "writing_arxiv": ("background", "method")}
COLLABS = dict.fromkeys(["code_collab", "code_collab_coop", "code_collab_mbpp"], ("aux", "main"))
CODES = dict.fromkeys(["code", "code_contests", "code_humaneval", "code_live", "code_problems"], ("tester", "coder"))
PAIRS = {
    "couplet": ("first", "second"),
    "signalling": ("sender", "receiver"),
    "kuhn": ("player", "opponent"),
    "math": ("tool", "reasoner"),
    "reasoning_gym": ("tool", "reasoner"),
    **WRITERS,
    **COLLABS,
    **CODES,
    "search": ("searcher", "reasoner"),
    "delegation": ("red", "blue", "green", "grey", "orchestrator"),
    "math_team": tuple(members(3)),
    "math_team_5": tuple(members(5)),
    "math_team_7": tuple(members(7)),
    "math_team_vote": tuple(members(5, "vote")),
}
NO_SOLO = ("couplet", "signalling", "kuhn", "delegation", "math_team", "math_team_5", "math_team_7", "math_team_vote")
REGIMES = ("specialized", "shared", "lora", "single")


def agents_of(world: str) -> tuple[str, ...]:
    return PAIRS.get(world, ("tool", "plan"))


def test_there_is_one_file_per_regime() -> None:
    assert set(choices("regime")) == set(REGIMES)


ALGORITHMS = {**dict.fromkeys(("couplet", *WRITERS, *COLLABS), "magrpo.Magrpo"), "single": "grpo.Grpo"}
ALGORITHMS["kuhn"] = "grpo.Grpo"
"""Of experiments: by the regime, else by the world; the others' is AT-GRPO."""


PAIRS_OF_NAMES = [(world, regime) for world in WORLDS for regime in REGIMES if world not in SETTINGS]
PAIRS_OF_NAMES += [(world, REGIMES[number % 4]) for number, world in enumerate(sorted(SETTINGS))]
QUICK = {(world, REGIMES[number % 4]) for number, world in enumerate(WORLDS) if world not in SETTINGS}
QUICK |= {("code", regime) for regime in REGIMES}
"""In the default tests every world in one regime, and one in all."""


@pytest.mark.parametrize(("world", "regime"), slow_but(QUICK, PAIRS_OF_NAMES))
def test_every_experiment(composed: Composed, world: str, regime: str) -> None:
    experiment = f"experiment={world}_{regime}"
    if world in NO_SOLO and regime == "single":
        with pytest.raises(ConfigError, match=f"env={world} has no variant with one agent"):
            composed(experiment)
        return
    cfg = composed(experiment)
    agents = ("solo",) if regime == "single" else agents_of(world)
    assert cfg.name == f"{world}_{regime}"
    assert dict(cfg.team) == {
        agent: "shared" if regime == "shared" and agent != "opponent" else agent for agent in agents
    }
    assert list(cfg.policies) == list(dict.fromkeys(cfg.team.values()))
    tunings = {name: policy.tuning for name, policy in cfg.policies.items()}
    assert tunings.pop("opponent", "past") == "past" and cfg.policies.get("opponent", {}).get("past", {}).get("of") == (
        cfg.team.player if "player" in cfg.team else None
    )
    assert set(tunings.values()) == {"lora" if regime == "lora" else "full"}
    assert "_world_" not in OmegaConf.to_yaml(cfg) and "_regime_" not in OmegaConf.to_yaml(cfg)
    rule = ALGORITHMS.get(regime, ALGORITHMS.get(world, "at_grpo.AtGrpo"))
    assert cfg.algorithm.credit._target_ == f"troupe.algorithms.credit.{rule}"


def test_an_experiment_is_more_than_its_world_and_its_regime_where_the_world_says_so(composed: Composed) -> None:
    algorithm = composed("experiment=signalling_shared").algorithm
    assert (algorithm.reward.team, algorithm.objective.entropy) == ("global", 0.02)
    plain = composed("env=signalling", "regime=shared").algorithm
    assert (plain.reward.team, plain.objective.entropy) == ("own", 0.0)


def test_a_file_counts_before_the_experiment_that_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "code_shared.yaml").write_text("# @package _global_\nseed: 7\n")
    with configurations(str(tmp_path)):
        assert compose("train", overrides=["experiment=code_shared"]).seed == 7
        assert {"code_lora", "code_shared", "couplet_specialized"} < set(all_choices("experiment"))
        (tmp_path / "experiment" / "code_shared.yaml").write_text("# @package _global_\nseed: 11\n")
        assert compose("train", overrides=["experiment=code_shared"]).seed == 11  # read again: it was changed


def test_a_file_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with configurations():
        words = ["experiment=sokoban_lora", "run_dir=nowhere"]  # whose default has the time
        before, parses, load = compose("train", overrides=words), [], OmegaConf.load
        monkeypatch.setattr(OmegaConf, "load", lambda file: parses.append(file) or load(file))
        assert compose("train", overrides=words) == before and not parses


def test_what_a_world_s_policies_have_otherwise(composed: Composed) -> None:
    """policy=SCALE_WORLD: the keys that the world declares, over the file of the scale, or another that it names."""
    both = composed("scale=paper_magrpo", "env=code_collab_coop").policies.aux
    assert (both.base, both.prompts, both.optimizer.lr) == ("Qwen/Qwen2.5-Coder-3B", "raw", 2e-5)
    assert (both.sampling.train.temperature, both.sampling.eval.top_p, both.sampling.eval.top_k) == (0.8, 0.95, 50)
    with configurations():
        assert {"laptop", "laptop_math", "smollm2_writing", "frozen"} < set(all_choices("policy"))
    with pytest.raises(ConfigError, match="policy=laptop_mixed is unknown: env=mixed declares no keys of its own"):
        composed("policy@policies.tool=laptop_mixed")


def test_words_reach_the_policies_that_a_regime_makes(composed: Composed) -> None:
    cfg = composed("env=code", "regime=lora", "policies.tester.lora.r=4", "team.coder=tester", "~policies.coder")
    assert cfg.policies.tester.lora.r == 4 and dict(cfg.team) == {"tester": "tester", "coder": "tester"}
    cfg = composed("env=math", "policy@policies.tool=[laptop_math,frozen]")
    assert [policy.tuning for policy in cfg.policies.values()] == ["frozen", "full"]
    assert cfg.policies.tool.optimizer is None and cfg.policies.tool.base == "laptop_math"


def test_hydra_names_what_is_unknown_in_a_policy(composed: Composed) -> None:
    with pytest.raises(ConfigCompositionException, match=r"Could not override 'policies\.tol\.optimizer\.lr'"):
        composed("policies.tol.optimizer.lr=1")
    with pytest.raises(ConfigCompositionException, match=r"Could not override 'policy@policies\.tol'"):
        composed("policy@policies.tol=[laptop,frozen]")


@pytest.mark.parametrize("word", ["experiment=sokoban", "experiment=lora", "policy@policies.tool=code_collab"])
def test_half_a_name_is_no_choice(composed: Composed, word: str) -> None:
    with pytest.raises(ConfigCompositionException, match=word.partition("=")[2]):
        composed("experiment=sokoban_specialized", word)


def test_what_a_world_has_otherwise_at_a_scale(composed: Composed) -> None:
    assert composed("env=couplet").loop.iterations == 300
    assert composed("env=plan_path").loop.iterations == 100
    assert composed("env=math", "regime=lora").policies.tool.optimizer.lr == 2e-3
    assert composed("env=math", "scale=paper_8b").policies.tool.sampling.eval.temperature == 0.6
    assert composed("env=code", "scale=paper_8b").policies.tester.sampling.eval.temperature == 1.0


def test_composing_needs_nothing_but_hydra() -> None:
    """In a process that has imported nothing of the package."""
    program = (
        "from hydra import compose, initialize_config_module\n"
        "for world in ('code', 'couplet'):\n"
        "    with initialize_config_module('troupe.configs', version_base='1.3'):\n"
        "        cfg = compose('train', overrides=[f'env={world}', 'regime=lora'])\n"
        "    print(*cfg.team, '_world_' in cfg.env)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "tester coder False\nfirst second False\n", done.stderr


# ---- worlds and regimes of the user's -------------------------------------------------------------------------------

WHISPER = '''
"""Whisper: each agent hears what the one before said; the last must say the word that the first was told."""

import copy
from random import Random

from troupe.envs.base import StepResult, TeamEnv
from troupe.experience import Task

WORDS = {"train": 6, "validation": 7, "test": 8}


class Whisper(TeamEnv):
    def __init__(self, *, alone: bool = False) -> None:
        self.agents, self.horizon = (("last",) if alone else ("first", "middle", "last")), 1
        self.turn, self.word, self.heard, self.waiting = 0, "", "", ()

    def tasks(self, split, count, seed):
        words = [f"{row},{column}" for row in range(WORDS[split]) for column in range(WORDS[split])]
        return [Task(f"{split}-{word}", split, {"word": word}) for word in Random(seed).sample(words, count)]

    def reset(self, task):
        self.turn, self.word, self.waiting = 0, task.data["word"], self.agents
        self.heard = self.word

    def next_agents(self):
        return self.waiting[:1]

    def observe(self, agent):
        return [{"role": "user", "content": f"last {self.heard} goal"}]

    async def step(self, actions):
        ((agent, text),) = actions.items()
        self.heard = text.split()[0] if text.split() and "<" not in text else "none"
        self.waiting = self.waiting[1:]
        right, done = self.heard == self.word, not self.waiting
        self.turn += done
        return StepResult({agent: -len(text) / 100}, float(right), done, right and done)

    def fork(self):
        return copy.copy(self)

    def state_key(self):
        return (self.word, self.heard, self.waiting)
'''
YAML = """
_target_: whisper.Whisper
alone: false
_world_:
  agents: [first, middle, last]
  policies: {laptop: laptop}
  solo: {agent: last, env: {alone: true}}
"""
SMALL = [
    *("loop.iterations=1", "loop.tasks_per_iteration=3", "loop.validation_tasks=2", "loop.test_tasks=2"),
    *("loop.eval_every=1", "algorithm.sampler.k=2"),
]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder outside of the repository: one Python file, on the path as PYTHONPATH puts it, and one yaml."""
    (tmp_path / "whisper.py").write_text(WHISPER)
    (tmp_path / "conf" / "env").mkdir(parents=True)
    (tmp_path / "conf" / "env" / "mine.yaml").write_text(YAML)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    handlers = logging.root.handlers[:]
    yield tmp_path / "conf"
    GlobalHydra.instance().clear()
    logging.root.handlers[:] = handlers  # Hydra's write to a stream that ends with the test


def command(monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["troupe"])
    start(name, words)


@pytest.mark.parametrize("regime", slow_but(("lora",), REGIMES))
def test_a_world_of_three_agents_trains_with_one_yaml(own: Path, monkeypatch: pytest.MonkeyPatch, regime: str) -> None:
    words = ["env=mine", f"regime={regime}", "run_dir=run", *SMALL]
    command(monkeypatch, "train", "--config-dir", str(own), *words)
    agents = ["last"] if regime == "single" else ["first", "middle", "last"]
    policies = ["shared"] if regime == "shared" else agents
    config: Any = OmegaConf.to_container(OmegaConf.load("run/config.yaml"))
    assert (list(config["team"]), list(config["policies"])) == (agents, policies)
    assert config["name"] == f"mine_{regime}" and config["env"] == {
        "_target_": "whisper.Whisper",
        "history": False,
        "alone": regime == "single",
    }
    assert json.loads(Path("run/summary.json").read_text())["status"] == "finished"
    state = json.loads(Path("run/checkpoints/last/state.json").read_text())
    assert state["versions"] == dict.fromkeys(policies, 1)
    (row,) = map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
    for policy in policies:
        assert row[f"train/{policy}/samples"] > 0 and row[f"train/{policy}/grad_norm"] > 0


def test_the_users_world_is_evaluated(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["exp=sokoban_shared", "overrides=['env=mine','regime=shared']", "tasks=2", "temperature=0", "name=base"]
    command(monkeypatch, "eval", "--config-dir", str(own), *words)
    (summary,) = Path("runs").rglob("summary.json")
    assert list(json.loads(summary.read_text())["conditions"]) == ["greedy"]


@pytest.mark.slow
def test_several_worlds_in_one_multirun(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["env=mine,code", "regime=shared", "dry_run=true", *SMALL]
    command(monkeypatch, "train", "--config-dir", str(own), "--multirun", *words)
    printed = capsys.readouterr().out
    assert "mine_shared: a dry run" in printed and "code_shared: a dry run" in printed


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [[], ["launcher=joblib", "hydra.launcher.n_jobs=1"]], ids=["basic", "joblib"])
def test_a_sweep_over_regimes_in_the_users_world(own: Path, launcher: list[str]) -> None:
    settings = {regime: [f"regime={regime}"] for regime in ("shared", "lora")}
    file = {"question": "?", "overrides": ["env=mine", *SMALL], "settings": settings, "seeds": [0]}
    Path("own.yaml").write_text(yaml.safe_dump(file))
    assert sweep.run(["sweep=own.yaml", "--config-dir", str(own), *launcher]) == 0
    page = Path("runs/sweeps/own/table.md").read_text()
    assert "| shared | 0 | finished |" in page and "| lora | 0 | finished |" in page
    with configurations():  # Hydra still knows the teams, in this process too
        assert list(compose("train", overrides=["regime=shared"]).policies) == ["shared"]


def test_a_users_world_may_extend_one_of_the_package(own: Path) -> None:
    (own / "env" / "mine.yaml").write_text(
        "defaults: [code, _self_]\n_world_: {policies: {laptop: laptop}}\nmax_tests: 1\n"
    )
    with configurations(str(own)):
        cfg = compose("train", overrides=["env=mine", "regime=lora"])
    assert list(cfg.policies) == ["tester", "coder"] and cfg.env.max_tests == 1
    assert {policy.base for policy in cfg.policies.values()} == {"laptop"}


def test_a_regime_of_the_users_is_a_rule_or_names_its_policies(own: Path) -> None:
    (own / "regime").mkdir()
    (own / "regime" / "one_adapter.yaml").write_text("_regime_: {policies: shared, over: [lora]}\n")
    (own / "regime" / "judged.yaml").write_text(
        "# @package _global_\n"
        "defaults:\n"
        "  - /policy@policies.tool: ${scale}\n"
        "  - /policy/frozen@policies.tool\n"
        "  - /policy@policies.plan: ${scale}\n"
        "team: {tool: tool, plan: plan}\n"
    )
    with configurations(str(own)):
        one = compose("train", overrides=["env=code", "regime=one_adapter"])
        judged = compose("train", overrides=["regime=judged"])
    assert list(one.policies) == ["shared"] and one.policies.shared.tuning == "lora"
    assert [policy.tuning for policy in judged.policies.values()] == ["frozen", "full"]


def test_a_world_without_agents_is_refused(own: Path) -> None:
    (own / "env" / "mine.yaml").write_text("_target_: whisper.Whisper\n")
    with configurations(str(own)), pytest.raises(ConfigError, match=r"env=mine: its yaml has no _world_"):
        compose("train", overrides=["env=mine", "regime=shared"])


@pytest.mark.slow
def test_the_command_as_a_user_types_it(own: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(own.parent), "OMP_NUM_THREADS": "1"}
    words = ["--config-dir", str(own), "env=mine", "regime=lora", "run_dir=run", *SMALL]
    done = subprocess.run(
        [sys.executable, "-m", "troupe", *words], cwd=own.parent, env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    assert (own.parent / "run" / "checkpoints" / "last" / "middle" / "adapter_config.json").is_file()


def test_worlds_of_hydra_searchpath(own: Path) -> None:
    with configurations():
        cfg = compose("train", overrides=["env=mine", "regime=shared", f"hydra.searchpath=[file://{own}]"])
    assert list(cfg.team) == ["first", "middle", "last"]


@pytest.mark.parametrize(("has_it", "precision"), [(True, "bf16-true"), (False, "32-true")])
def test_a_machine_without_bfloat16_has_float32(
    has_it: bool, precision: str, composed: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "multiplies_bfloat16", lambda: has_it)
    cfg = composed("experiment=code_collab_lora", "scale=coder")
    assert cfg.strategy.precision == precision
    assert cfg.engine.dtype == ("bfloat16" if precision == "bf16-true" else None)  # of evaluations of the run, too

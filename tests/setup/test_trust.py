"""Run directories of strangers are data: whatever they hold, nothing of it runs, and nothing leaves this machine."""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from troupe import Experiment, Run
from troupe.api.playing import play_team
from troupe.api.replaying import replay_episode
from troupe.cli import push_to_hub, report, runs
from troupe.cli.compare import main as compare
from troupe.cli.eval import run as evaluate
from troupe.cli.serve import servings
from troupe.cli.start import play_words
from troupe.errors import ConfigError
from troupe.models.pools.checkpoint import CheckpointError
from troupe.setup.command_line import explains_itself, with_open_keys
from troupe.setup.composition import configurations
from troupe.setup.evaluation import trained_team
from troupe.setup.trust import Trust

SMALL = "env.horizon=1 loop.iterations=0 loop.test_tasks=2 loop.validation_tasks=1".split()
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run: its checkpoint has a full policy and an adapter."""
    path = tmp_path_factory.mktemp("honest") / "run"
    words = ["policies.plan.tuning=full", "policies.plan.lora=null", f"run_dir={path}"]
    return Experiment.compose("sokoban_lora", [*SMALL, *words]).train().path


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that hostile code would write; the run's neighbour, a module, would too."""
    (tmp_path / "neighbour.py").write_text(
        f"open({str(tmp_path / 'canary')!r}, 'w').close()\ndef world(**keys): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "canary"


@pytest.fixture
def hostile(honest: Path, canary: Path) -> Callable[[Change], Path]:
    """``hostile(change)``: a copy of the run, whose configuration ``change`` has changed."""

    def copy(change: Change) -> Path:
        path = canary.parent / "run"
        shutil.copytree(honest, path, symlinks=True)
        config = yaml.safe_load((path / "config.yaml").read_text())
        change(config)
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        return path

    return copy


def composed(command: str, *words: str) -> dict[str, Any]:
    rewritten = {"eval": with_open_keys, "play": play_words, "replay": with_open_keys}.get(command, list)
    with initialize_config_module("troupe.configs", version_base="1.3"):
        return OmegaConf.to_container(compose(command, overrides=rewritten(words)))  # type: ignore[return-value]


def evaluated(path: Path, *words: str) -> None:
    evaluate(OmegaConf.create(composed("eval", f"run={path}", "checkpoint=last", "temperature=own", *words)))


def played(path: Path, *words: str) -> None:
    play_team(composed("play", f"run={path}", "checkpoint=last", *words))


def replayed(path: Path, *words: str) -> None:
    replay_episode(composed("replay", f"run={path}", "episode=test_00000/0", "turn=1", "checkpoint=last", *words))


def resumed(path: Path, *words: str) -> None:
    Experiment.resume(path, ["loop.iterations=0", *words]).train()


def published(path: Path) -> None:
    push_to_hub.push(composed("push_to_hub", f"run={path}", "repo=me/team", "checkpoint=last", "dry_run=true"))


def served(path: Path) -> None:
    servings(trained_team("run", str(path), None), "last", 8000)


def loaded(path: Path) -> None:
    run = Run(path)
    for name in run.policies:
        run.policy(name, "last")


PLAYING = {"eval": evaluated, "play": played, "replay": replayed, "resume": resumed}
READING = {
    **{"serve": served, "push-to-hub": published, "Run": loaded},
    **{
        name: lambda path, main=main: main([str(path)]) for name, main in (("report", report.main), ("runs", runs.main))
    },
    "compare": lambda path: compare([str(path), str(path)]),
}
ALL = PLAYING | READING


def refused(work: Callable[[Path], object], path: Path) -> str:
    """How ``work`` refuses the run in ``path``; "" where it does what it does without."""
    try:
        work(path)
    except SystemExit as error:
        return str(error)
    except Exception as error:
        if not explains_itself(error):
            raise
        return str(error)
    return ""


# ---- classes ------------------------------------------------------------------------------------------------------


def set_to(value: Any, *keys: str) -> Change:
    def change(config: dict[str, Any]) -> None:
        for key in keys[:-1]:
            config = config.setdefault(key, {})
        config[keys[-1]] = value

    return change


TOUCH = {"_target_": "os.system", "_args_": ["touch canary"]}
TARGETS: dict[str, Any] = {
    "a function": TOUCH,
    "a class": {"_target_": "subprocess.Popen", "args": ["touch", "canary"]},
    "a partial": {"_target_": "builtins.exec", "_partial_": True, "_args_": ["open('canary', 'w')"]},
    "torch.hub": {"_target_": "torch.hub.load", "repo_or_dir": ".", "source": "local", "model": "m"},
    "an import of Troupe's": {"_target_": "troupe.sandbox.launch.subprocess.Popen", "args": ["touch", "canary"]},
    "an import of torch's": {"_target_": "torch.optim.lr_scheduler.types.FunctionType"},
    "a class of Troupe that starts a program": {"_target_": "troupe.sandbox.worker.Worker", "plan": {}},
    "a function of Troupe": {"_target_": "troupe.setup.instantiation.call", "_args_": ["k", "os.system"]},
    "a method": {"_target_": "troupe.envs.grid.sokoban.Sokoban.fork"},
    "a function of transformers": {"_target_": "transformers.optimization.partial", "_args_": ["os.system"]},
    "Hydra's own": {"_target_": "hydra.utils.get_method", "path": "os.system"},
    "a module nearby": {"_target_": "neighbour.world"},
    "no text": {"_target_": {"a": 1}},
    "nothing": {"_target_": None},
    "an interpolation": {"_target_": "${oc.env:X}"},
}


@pytest.mark.parametrize("case", TARGETS)
def test_code_of_others_is_refused_wherever_it_is_named(canary: Path, case: str) -> None:
    node = TARGETS[case]
    world = {"_target_": "troupe.envs.grid.sokoban.Sokoban"}
    for key, section in {
        "env": node,
        "env.sandbox": {**world, "sandbox": node},
        "env.x.1.0": {**world, "x": [1, [node]]},
        "env._args_.0": {**world, "_args_": [node], "_recursive_": False},
    }.items():
        with pytest.raises(ConfigError) as error:
            Trust().check_targets("env", section)
        assert str(error.value).startswith(f"{key}._target_={node['_target_']}: a stored run may name")
    assert not canary.exists()


@pytest.mark.parametrize("name", ["writing.ArticleSource", "writing.GeneratedPosts", "math.Polaris"])
def test_sources_of_tasks_may_be_named(name: str) -> None:
    Trust().check_targets("env", {"train": [{"_target_": f"troupe.envs.{name}"}]})


def test_code_that_a_stored_run_names_runs_nowhere(hostile: Callable[[Change], Path], canary: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        for keys in (("env", "sandbox"), ("engine", "_args_"), ("logger", "mine"), ("policies", "tool", "optimizer")):
            node = deepcopy(TOUCH)  # no alias
            set_to([node] if keys[-1] == "_args_" else node, *keys)(config)

    path = hostile(change)
    for work in PLAYING.values():
        with pytest.raises(ConfigError, match=r"_target_=os\.system: .*give trust=\[os\]"):
            work(path)
    for work in READING.values():  # which build nothing
        refused(work, path)
    assert not canary.exists()


def test_a_continued_run_is_checked_as_a_whole(hostile: Callable[[Change], Path], canary: Path) -> None:
    with pytest.raises(ConfigError, match=r"logger\.mine\._target_=os\.system"):
        resumed(hostile(set_to(TOUCH, "logger", "mine")))
    assert not canary.exists()


def test_what_the_user_trusts_by_name_is_built(hostile: Callable[[Change], Path], canary: Path) -> None:
    path = hostile(set_to("neighbour.world", "env", "_target_"))
    with pytest.raises(ConfigError, match=r"env\._target_=neighbour\.world.*give trust=\[neighbour\]"):
        evaluated(path)
    assert not canary.exists()
    with pytest.raises(ConfigError, match="trust must be a list of packages and servers"):
        evaluated(path, "trust=neighbour")
    with pytest.raises(ConfigError, match="a NoneType cannot stand here"):  # it makes no world
        evaluated(path, "trust=[neighbour]")
    assert canary.exists()


def test_the_run_itself_adds_nothing_to_the_trust(hostile: Callable[[Change], Path], canary: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["env"]["_target_"], config["trust"] = "neighbour.world", ["neighbour"]
        config |= {"hydra": {"searchpath": ["."]}, "defaults": [{"override hydra/job_logging": "x"}]}

    path = hostile(change)
    for work in PLAYING.values():
        with pytest.raises(ConfigError, match=r"env\._target_=neighbour\.world|hydra|defaults"):
            work(path)
    assert not canary.exists()


def test_a_path_through_a_trusted_package_leads_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_of_trust.py").write_text(
        "import os, subprocess\nfrom collections import Counter\nclass World: pass\ndef make(): pass\n"
    )
    trust = Trust.of(["mine_of_trust"])
    for name in ("World", "make"):
        trust.check_targets("env", {"_target_": f"mine_of_trust.{name}"})
    for name in ("os.system", "subprocess.run", "Counter"):
        with pytest.raises(ConfigError, match=rf"env\._target_=mine_of_trust\.{name}"):
            trust.check_targets("env", {"_target_": f"mine_of_trust.{name}"})
    with pytest.raises(ConfigError, match=r"env\._target_=mine_of_trustless\.World"):
        trust.check_targets("env", {"_target_": "mine_of_trustless.World"})


def test_what_the_users_folders_and_packages_name_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("own/env", "lab_of_trust/conf/env"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lab_of_trust" / "conf" / "__init__.py").touch()
    (tmp_path / "own" / "env" / "mine.yaml").write_text(
        "_target_: mine.World\nbox: &box {_target_: collections.Counter}\nother: *box\n"
    )
    (tmp_path / "own" / "damaged.yaml").write_text("a: [")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)  # as in a process that composed nothing
    assert not Trust.of([]).packages
    with configurations(str(tmp_path / "own")):
        words = ["hydra.searchpath=[pkg://lab_of_trust.conf]"]
        HydraConfig.instance().set_config(compose("eval", overrides=words, return_hydra_config=True))
    trust = Trust.of([])
    assert trust.packages == {"mine", "lab_of_trust"} and trust.targets == {"mine.World", "collections.Counter"}
    trust.check_targets("env", {"_target_": "collections.Counter"})
    with pytest.raises(ConfigError, match=r"env\._target_=collections\.UserDict"):
        trust.check_targets("env", {"_target_": "collections.UserDict"})


def test_every_configuration_of_troupe_is_allowed() -> None:
    import troupe.configs

    targets: list[str] = []
    for file in Path(troupe.configs.__path__[0]).rglob("*.yaml"):
        targets += [line.partition("_target_:")[2].split("}")[0].split(",")[0].strip() for line in _lines(file)]
    assert len(targets) > 40
    targets.remove(upload := "troupe.api.publishing.PushToHub")  # which whoever continues a run asks for again
    with pytest.raises(ConfigError, match=r"give trust=\[troupe\.api\.publishing\]$"):
        Trust().check_targets("key", {"_target_": upload})
    for target in targets:
        Trust().check_targets("key", {"_target_": target})


def _lines(file: Path) -> list[str]:
    """But for a world's own agents, ``_world_.agents``: no run stores them."""
    return [line for line in file.read_text().splitlines() if "_target_:" in line and "agents: {" not in line]


# ---- servers, the environment, isolation --------------------------------------------------------------------------


def test_no_key_and_no_prompt_is_sent_to_a_server_that_the_run_names(
    hostile: Callable[[Change], Path], chat_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_USER", "s3cret")

    def change(config: dict[str, Any]) -> None:
        own = {"base": None, "lora": None, "optimizer": None, "scheduler": None, "chat": None}
        server = {"url": chat_server.url, "model": "m", "key_env": "SECRET_OF_THE_USER"}
        config["policies"]["tool"] |= {"tuning": "remote", "remote": server, **own}

    path = hostile(change)
    for work in PLAYING.values():
        with pytest.raises(
            ConfigError, match=rf"policies\.tool\.remote\.url={chat_server.url}.*trust=\[{chat_server.url}\]"
        ):
            work(path)
    refused(published, path)
    assert not chat_server.seen and not chat_server.keys
    evaluated(path, f"trust=[{chat_server.url}]")
    assert set(chat_server.keys) == {"Bearer s3cret"}


def test_the_environment_is_not_read_into_a_stored_configuration(
    hostile: Callable[[Change], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_USER", "s3cret")
    path = hostile(set_to("${oc.env:SECRET_OF_THE_USER}", "name"))
    for work in PLAYING.values():
        with pytest.raises(ConfigError, match=r"name='\$\{oc.env:SECRET_OF_THE_USER\}' is an interpolation"):
            work(path)
    for name in ("report", "runs", "push-to-hub"):
        refused(READING[name], path)
    assert not any("s3cret" in file.read_text(errors="replace") for file in path.rglob("*") if file.is_file())


def test_a_stored_run_does_not_turn_isolation_off(hostile: Callable[[Change], Path]) -> None:
    sandbox = {"_target_": "troupe.sandbox.LocalSandbox", "allow_unsafe_execution": True}
    path = hostile(set_to(sandbox, "env", "sandbox"))
    for work in PLAYING.values():
        with pytest.raises(
            ConfigError, match=r"env\.sandbox\.allow_unsafe_execution=true.*trust=\[allow_unsafe_execution\]"
        ):
            work(path)
    Trust.of(["allow_unsafe_execution"]).check_targets("env", {"sandbox": sandbox})


# ---- paths and links ----------------------------------------------------------------------------------------------


def test_names_of_policies_are_no_paths(hostile: Callable[[Change], Path], tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("private")

    def change(config: dict[str, Any]) -> None:
        name = str(tmp_path / "private")
        config["policies"][name] = config["policies"].pop("plan")
        config["team"]["plan"] = name

    path = hostile(change)
    for name in (*PLAYING, "serve", "push-to-hub", "Run"):
        with pytest.raises(ConfigError, match="a policy's name is letters"):
            ALL[name](path)
    assert not (tmp_path / "hub").exists()


@pytest.mark.parametrize("past", [{"of": "../../private"}, {"of": "/private"}, {}, None])
def test_past_weights_are_those_of_a_policy_of_the_run(hostile: Callable[[Change], Path], past: object) -> None:
    path = hostile(lambda config: config["policies"]["plan"].update(tuning="past", past=past))
    for name in (*PLAYING, "push-to-hub"):
        with pytest.raises(ConfigError, match=r"policies\.plan\.past\.of must be one of the policies"):
            ALL[name](path)


@pytest.mark.parametrize("link", ["checkpoints/best", "evaluations"])
def test_links_out_of_the_run_are_neither_written_nor_published(
    hostile: Callable[[Change], Path], tmp_path: Path, link: str
) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("private")
    path = hostile(lambda config: None)
    (path / link).unlink(missing_ok=True)
    (path / link).symlink_to(tmp_path / "private" / ("key" if link.endswith(".txt") else ""))
    for name in ("eval", "resume", "push-to-hub"):
        assert "leads out of the run directory" in refused(ALL[name], path)
    assert [file.name for file in (tmp_path / "private").iterdir()] == ["key"]
    assert not (tmp_path / "hub").exists()


def test_links_in_the_place_of_files_that_are_written_are_not_followed(
    hostile: Callable[[Change], Path], tmp_path: Path
) -> None:
    profile = tmp_path / "profile"
    profile.write_text("mine\n")
    path = hostile(set_to("$(touch canary)", "name"))
    for name in ("report.html.tmp", "report.html", "config.yaml.tmp", "summary.json.tmp", "metrics.jsonl.tmp", "lock"):
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(profile)
    for name in ("eval", "resume", "report"):
        refused(ALL[name], path)
    assert profile.read_text() == "mine\n"
    assert (path / "report.html").is_file() and not (path / "report.html").is_symlink()


# ---- checkpoints --------------------------------------------------------------------------------------------------


class Touch:
    """What writes the canary when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


@pytest.mark.parametrize("name", ["plan/training.pt", pytest.param("rng.pt", marks=pytest.mark.slow), "state.json"])
def test_states_of_a_continued_run_are_no_pickles(hostile: Callable[[Change], Path], canary: Path, name: str) -> None:
    path = hostile(lambda config: None)
    checkpoint = path / "checkpoints" / "iteration_00000"
    torch.save(Touch(canary), checkpoint / name)
    listed = json.loads((checkpoint / "checksums.json").read_text())
    listed[name] = hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()
    (checkpoint / "checksums.json").write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match=name.rpartition("/")[0] or name):
        resumed(path, "loop.iterations=1")
    assert not canary.exists()


@pytest.mark.slow
def test_states_of_a_continued_run_do_not_unfold(hostile: Callable[[Change], Path]) -> None:
    path = hostile(lambda config: None)
    checkpoint = path / "checkpoints" / "iteration_00000"
    with zipfile.ZipFile(checkpoint / "plan" / "training.pt", "a", zipfile.ZIP_DEFLATED) as states:
        states.writestr("archive/data/999", bytes(64 << 20))
    listed = json.loads((checkpoint / "checksums.json").read_text())
    listed["plan/training.pt"] = hashlib.sha256((checkpoint / "plan" / "training.pt").read_bytes()).hexdigest()
    (checkpoint / "checksums.json").write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match=r"does not fit policy 'plan': training\.pt would unfold to"):
        resumed(path, "loop.iterations=1")


def test_weights_of_a_checkpoint_are_no_pickles(hostile: Callable[[Change], Path], canary: Path) -> None:
    path = hostile(lambda config: None)
    for policy, file, pickled in (
        ("plan", "model.safetensors", "pytorch_model.bin"),
        ("tool", "adapter_model.safetensors", "adapter_model.bin"),
    ):
        folder = path / "checkpoints" / "iteration_00000" / policy
        (folder / file).unlink()
        torch.save(Touch(canary), folder / pickled)
    for name in ("eval", "play", "Run"):
        assert "safetensors" in refused(ALL[name], path)
    published(path)
    assert not canary.exists() and not list(Path("hub").rglob("*.bin"))

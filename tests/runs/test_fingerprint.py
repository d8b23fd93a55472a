"""Two runs are the same where training is configured the same and the code is."""

import json
import subprocess
import sys
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from troupe.runs.files import parse_yaml
from troupe.runs.fingerprint import (
    BY_PATH,
    EXCLUDED,
    LEFT_OUT,
    PACKAGE,
    ROOTS,
    _hash_with,
    _names,
    code_files,
    code_hash,
    training_hash,
    training_keys,
)
from troupe.runs.imports import _file, _imports
from troupe.runs.own_code import _sources

CONFIG: dict[str, Any] = {
    "seed": 0,
    "name": "game",
    "run_dir": "runs/a",
    "loop": {"iterations": 3, "eval_every": 1, "test_tasks": 5, "validation_tasks": 5},
    "algorithm": {"sampler": {"alpha": 1.0, "k": 4}},
    "policies": {"tool": {"sampling": {"train": {"top_p": 1.0}, "eval": {"temperature": 1.0}}}},
}


def changed(key: str, value: Any) -> dict[str, Any]:
    """CONFIG with one leaf set, which may be new."""
    head, _, rest = key.partition(".")

    def put(node: dict[str, Any], head: str, rest: str) -> dict[str, Any]:
        if not rest:
            return {**node, head: value}
        after, _, more = rest.partition(".")
        return {**node, head: put(node.get(head, {}), after, more)}

    return put(CONFIG, head, rest)


@pytest.mark.parametrize(
    "key",
    [
        *("seed", "loop.iterations", "algorithm.sampler.k", "policies.tool.sampling.train.top_p", "policies.plan.base"),
        *("policies.tool.remote.url", "policies.tool.remote.model", "policies.tool.remote.extra"),
    ],
)
def test_what_trains_counts(key: str) -> None:
    assert training_hash(changed(key, 7)) != training_hash(CONFIG)


@pytest.mark.parametrize("key", [key.replace("*", "tool") for key in EXCLUDED])
def test_what_does_not_train_is_left_out(key: str) -> None:
    assert training_hash(changed(key, {"anything": 7})) == training_hash(changed(key, "else")) == training_hash(CONFIG)


def test_a_key_that_only_begins_alike_counts() -> None:
    assert "loop.eval_every_other" in training_keys(changed("loop.eval_every_other", 2))
    assert "policies.tool.sampling.evaluation" in training_keys(changed("policies.tool.sampling.evaluation", 2))
    assert "env.name" in training_keys(changed("env.name", 2))


def test_order_and_the_way_a_number_is_written_do_not_count() -> None:
    assert training_hash(dict(reversed(CONFIG.items()))) == training_hash(CONFIG)
    assert training_hash(changed("algorithm.sampler.alpha", 1)) == training_hash(CONFIG)
    assert training_hash(changed("algorithm.sampler.alpha", True)) != training_hash(CONFIG)


def world(name: str, base: str = "laptop", **more: Any) -> dict[str, Any]:
    """A run in a world with a base model."""
    policies = {"tool": {"base": base, "optimizer": {"_target_": "torch.optim.AdamW"}}}
    return {"env": {"_target_": f"troupe.envs.{name}"}, "policies": policies, **more}


def files_of(config: dict[str, Any]) -> set[str]:
    return set(code_files(list(_names(config))))


def test_the_code_is_what_training_in_this_world_imports() -> None:
    sokoban, code = files_of(world("grid.sokoban.Sokoban")), files_of(world("code.MicroCode"))
    assert {
        "loop.py",
        "setup/assembly.py",
        "models/policy.py",
        "rollout/playing.py",
        "evaluation/episodes.py",
    } <= sokoban
    assert "envs/grid/sokoban.py" in sokoban - code and "envs/code/micro.py" in code - sokoban
    assert not {"envs/grid/plan_path.py", "rollout/engines/vllm/engine.py", "algorithms/credit/at_grpo.py"} & sokoban
    assert not {"cli", "reports", "sweep", "gateway", "diagnostics"} & {name.split("/")[0] for name in sokoban | code}
    assert "algorithms/credit/at_grpo.py" in files_of(
        world("grid.sokoban.Sokoban", credit={"_target_": "troupe.algorithms.credit.at_grpo.AtGrpo"})
    )


def test_names_in_lists_count() -> None:
    names = {"worlds": [{"_target_": "troupe.envs.grid.sokoban.Sokoban"}, "troupe.envs.math.Arithmetic"]}
    assert {"envs/grid/sokoban.py", "envs/math/arithmetic.py"} <= files_of(names)


def test_programs_that_a_file_starts_count() -> None:
    sandbox = files_of(world("code.MicroCode", sandbox={"_target_": "troupe.sandbox.LocalSandbox"}))
    assert {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "sandbox").rglob("*.py")} <= sandbox
    assert "rollout/template_trial.py" in sandbox
    assert "envs/math/answer_parser.py" in files_of(world("math.MathQuestions")), "it judges every answer"


def test_every_name_of_a_module_is_one() -> None:
    known = code_files([*LEFT_OUT, *ROOTS])
    for name in (*ROOTS, *LEFT_OUT):
        path = PACKAGE / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), name
    assert set(BY_PATH) <= set(known) | set(code_files(["sandbox.LocalSandbox", "envs.math.MathQuestions"]))


def hashed(package: Path, names: str = "worlds.Game", base: str = "base") -> str:
    _file.cache_clear()
    _imports.cache_clear()
    _hash_with.cache_clear()
    return _hash_with(frozenset({names}), frozenset(), frozenset({base}), package)


def package(folder: Path) -> Path:
    for base in ("base", "other"):
        (folder / "models" / "shipped" / base).mkdir(parents=True)
        (folder / "models" / "shipped" / base / "model.safetensors").write_bytes(b"weights")
    (folder / "reports").mkdir()
    for name in ("loop.py", "worlds.py", "other_worlds.py", "reports/page.py"):
        (folder / name).write_text("a = 1\n")
    (folder / "loop.py").write_text("from .reports import page\n")
    return folder


@pytest.mark.parametrize("name", ["loop.py", "worlds.py", "models/shipped/base/model.safetensors"])
def test_what_trains_is_in_the_codes_hash(tmp_path: Path, name: str) -> None:
    one = package(tmp_path / "one")
    before = hashed(one)
    assert hashed(package(tmp_path / "other")) == before
    (one / name).write_text("a = 2\n")
    assert hashed(one) != before


@pytest.mark.parametrize(
    "name",
    [
        *("reports/page.py", "other_worlds.py", "notes.txt", "models/shipped/base/README.md", "configs/__init__.py"),
        "models/shipped/other/model.safetensors",
    ],
)
def test_what_does_not_train_is_not_in_the_codes_hash(tmp_path: Path, name: str) -> None:
    one = package(tmp_path / "one")
    before = hashed(one)
    (one / name).parent.mkdir(exist_ok=True)
    (one / name).write_text("a = 2\n")
    assert hashed(one) == before


def test_keys_that_decide_nothing_do_not_count() -> None:
    sokoban = world("grid.sokoban.Sokoban")
    before = code_hash(sokoban)
    assert len(before) == 16 and before != code_hash(world("grid.plan_path.PlanPath")) != code_hash({})
    assert before != code_hash(world("grid.sokoban.Sokoban", base="laptop_gap"))
    logged = world("grid.sokoban.Sokoban", logger={"csv": {"_target_": "troupe.runs.loggers.CsvLogger"}})
    assert code_hash(logged) == before
    assert code_hash(world("grid.sokoban.Sokoban", logger={"x": {"_target_": "pathlib_of_mine.Logger"}})) == before


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["sokoban_specialized", "code_specialized"])
def test_all_functions_that_run_while_a_team_trains_are_hashed_or_left_out(experiment: str, tmp_path: Path) -> None:
    """By experiment: a profiler sees every call of a short run."""
    done = subprocess.run(
        [sys.executable, "-c", PROFILED, experiment], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    ran = set(json.loads(done.stdout.splitlines()[-1]))
    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("train", overrides=[f"experiment={experiment}", "name=run"])  # the default name needs Hydra's job
        config = parse_yaml(OmegaConf.to_yaml(cfg, resolve=True))
    observed = code_files(["diagnostics.diagnostics", "diagnostics.influence"])  # plays for the diagnostics' metrics
    others = {name for name in ran - files_of(config) - set(observed) if name.endswith(".py")}
    started = {"setup/build.py", "rollout/samplers/replay.py"}  # calls `assemble`; replays for diagnostics
    assert {name for name in others - started if not _left_out(name)} == set()
    assert {"loop.py", "models/policy.py", "rollout/playing.py"} <= ran


PROFILED = """
import json, sys, threading
from pathlib import Path
from hydra import compose, initialize_config_module
import troupe
from troupe.api.training import train
from troupe.setup.build import build
folder, ran = Path(troupe.__file__).parent, set()
def called(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(str(folder)) and not code.co_name.startswith("<module"):
        ran.add(Path(code.co_filename).relative_to(folder).as_posix())
with initialize_config_module("troupe.configs", version_base="1.3"):
    cfg = compose("train", overrides=[f"experiment={sys.argv[1]}", "debug=default", "run_dir=run"])
sys.setprofile(called), threading.setprofile(called)
train(build(cfg))
sys.setprofile(None), threading.setprofile(None)
print(json.dumps(sorted(ran)))
"""


def _left_out(path: str) -> bool:
    module = path.removesuffix(".py").replace("/", ".")
    return any(module == name or module.startswith(f"{name}.") for name in LEFT_OUT)


def test_the_users_code_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    config = {"env": {"_target_": "counted_world.World"}}
    before = code_hash(config)
    (tmp_path / "counted_world.py").write_text("a = 1\n")
    _forget()
    first = code_hash(config)
    (tmp_path / "counted_world.py").write_text("a = 2\n")
    assert code_hash(config) == first, "the code of this process does not change"
    _forget()
    assert len({before, first, code_hash(config)}) == 3
    assert before == code_hash({})


def test_a_base_model_that_was_made_again_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"policies": {"ann": {"base": "bases/mine"}, "bob": {"base": "laptop"}}}
    shipped = code_hash({"policies": {"bob": {"base": "laptop"}}})
    assert code_hash(config) == shipped
    Path("bases/mine").mkdir(parents=True)
    hashes = {shipped}
    for sums in ("{}", '{"model.safetensors": "1"}'):
        Path("bases/mine/checksums.json").write_text(sums)
        hashes.add(code_hash(config))
    assert len(hashes) == 3


def _forget() -> None:
    """What this process knows of the user's code."""
    invalidate_caches()
    _sources.cache_clear()
    _hash_with.cache_clear()

"""Two runs are the same where training is configured the same and the code is."""

from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.fingerprint import (
    EXCLUDED,
    OBSERVERS,
    PACKAGE,
    _hash_of_code,
    code_hash,
    training_hash,
    training_keys,
)
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


def hashed(package: Path) -> str:
    _hash_of_code.cache_clear()
    return _hash_of_code(frozenset(), package)


def package(folder: Path) -> Path:
    for name in ("loop.py", "envs/world.py", "reports/page.py", "models/bases/shipped/base/checksums.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a = 1\n")
    return folder


@pytest.mark.parametrize("name", ["loop.py", "envs/world.py", "models/bases/shipped/base/checksums.json", "new.py"])
def test_what_trains_is_in_the_codes_hash(tmp_path: Path, name: str) -> None:
    before, other = hashed(package(tmp_path / "one")), package(tmp_path / "other")
    assert hashed(other) == before
    (other / name).write_text("a = 2\n")
    assert hashed(other) != before


@pytest.mark.parametrize(
    "name", ["reports/page.py", "notes.txt", "models/bases/shipped/base/README.md", "configs/__init__.py"]
)
def test_what_does_not_train_is_not_in_the_codes_hash(tmp_path: Path, name: str) -> None:
    before = hashed(one := package(tmp_path / "one"))
    (one / name).parent.mkdir(exist_ok=True)
    (one / name).write_text("a = 2\n")
    assert hashed(one) == before


def test_every_room_that_is_left_out_is_there() -> None:
    assert all((PACKAGE / name / "__init__.py").is_file() for name in {*OBSERVERS} - {"configs"})  # of a wheel


def test_keys_that_decide_nothing_do_not_count() -> None:
    sokoban = world("grid.sokoban.Sokoban")
    before = code_hash(sokoban)
    assert len(before) == 16 and before == code_hash(world("grid.plan_path.PlanPath", base="laptop_gap"))
    assert code_hash(world("grid.sokoban.Sokoban", logger={"x": {"_target_": "pathlib_of_mine.Logger"}})) == before


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
    _hash_of_code.cache_clear()

"""Two runs are the same where training is configured the same and the code is."""

from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.fingerprint import EXCLUDED, _hash_with, code_hash, hash_of_code, training_hash, training_keys
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


def package(folder: Path) -> Path:
    (folder / "models" / "shipped" / "base").mkdir(parents=True)
    (folder / "loop.py").write_text("a = 1\n")
    (folder / "models" / "shipped" / "base" / "model.safetensors").write_bytes(b"weights")
    return folder


def test_code_is_source_and_base_model(tmp_path: Path) -> None:
    one, other = package(tmp_path / "one"), package(tmp_path / "other")
    (other / "models" / "shipped" / "base" / "README.md").write_text("a card")
    (other / "notes.txt").write_text("no code")
    assert hash_of_code(one) == hash_of_code(other)
    seen = {hash_of_code(one)}
    (one / "loop.py").write_text("a = 2\n")
    seen.add(hash_of_code(one))
    (one / "models" / "shipped" / "base" / "model.safetensors").write_bytes(b"others")
    seen.add(hash_of_code(one))
    (one / "loop.py").rename(one / "hoop.py")
    seen.add(hash_of_code(one))
    assert len(seen) == 4


def test_the_installed_code_has_a_hash() -> None:
    assert len(code_hash({})) == 16 and code_hash({}) == code_hash({"env": {"_target_": "troupe.envs.grid.Sokoban"}})


def test_a_wheel_has_the_hash_of_its_checkout(tmp_path: Path) -> None:
    """In a wheel, the folder of configurations lies in the package."""
    one, other = package(tmp_path / "src"), package(tmp_path / "site-packages" / "troupe")
    (other / "configs").mkdir()
    (other / "configs" / "__init__.py").write_text("a = 1\n")
    assert hash_of_code(one) == hash_of_code(other)


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
    assert code_hash(config) == code_hash({})
    Path("bases/mine").mkdir(parents=True)
    hashes = {code_hash({})}
    for sums in ("{}", '{"model.safetensors": "1"}'):
        Path("bases/mine/checksums.json").write_text(sums)
        hashes.add(code_hash(config))
    assert len(hashes) == 3


def _forget() -> None:
    """What this process knows of the user's code."""
    invalidate_caches()
    _sources.cache_clear()
    _hash_with.cache_clear()

"""Runs as the seeds of settings, and the configuration of these."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.reports.grouping import config_differences, settings_of, short
from troupe.runs.run import RunReader


@pytest.fixture
def write(tmp_path: Path, disk: Any) -> Callable[..., RunReader]:
    """``write(folder, seed, k, **more)``: a finished run; ``more`` are keys of its configuration."""

    def written(folder: str, seed: int, k: int = 4, status: str = "finished", **more: Any) -> RunReader:
        config = disk.config(seed, k) | {"run_dir": f"runs/{folder}"} | more
        return RunReader(disk.run(tmp_path / folder, config, disk.scores(1, 2, 3) | {"status": status}), tolerant=True)

    return written


def test_a_setting_has_the_runs_that_differ_in_their_seed_alone(write: Callable[..., RunReader]) -> None:
    runs = [write("r2", 1, 2), write("r0", 0, 2), write("r1", 0, 8), write("r3", 10, 2)]
    settings, problems = settings_of(runs)
    assert [(setting.name, [run.path.name for run in setting.runs]) for setting in settings] == [
        ("k=2", ["r0", "r2", "r3"]),
        ("k=8", ["r1"]),
    ]
    assert problems == []
    assert config_differences(settings) == [("algorithm.sampler.k", ["2", "8"])]


def test_names_of_runs_come_first(write: Callable[..., RunReader]) -> None:
    runs = [write("a", 0, 2, name="one"), write("b", 0, 4, name="two"), write("c", 0, 8, name="two")]
    assert [setting.name for setting in settings_of(runs)[0]] == ["one", "two k=4", "two k=8"]


def test_settings_that_no_key_tells_apart_have_numbers(write: Callable[..., RunReader]) -> None:
    both = {"env": {"a": 1, "b": 1, "c": 1}}, {"env": {"a": 1, "b": 1, "c": 2}}, {"env": {"a": 2, "b": 2, "c": 2}}
    names = [setting.name for setting in settings_of([write(str(i), 0, **each) for i, each in enumerate(both)])[0]]
    assert names == ["a=1 b=1 (1)", "a=1 b=1 (2)", "a=2 b=2"]


def test_runs_of_one_seed_are_settings_of_their_own(write: Callable[..., RunReader]) -> None:
    runs = [write("r0", 3, status="failed"), write("r1", 3), write("r2", 3)]
    settings, problems = settings_of(runs)
    assert [(setting.name, setting.runs) for setting in settings] == [
        ("r1", (runs[1],)),
        ("r2", (runs[2],)),
        ("r0", (runs[0],)),
    ]
    assert problems == [] and config_differences(settings) == []
    settings, _ = settings_of([*runs[:2], write("r3", 4)])
    assert [(setting.name, [run.path.name for run in setting.runs]) for setting in settings] == [
        ("runs 1", ["r1", "r3"]),
        ("r0", ["r0"]),
    ]
    names = [setting.name for setting in settings_of([*runs[:2], write("r4", 3, 8)])[0]]
    assert names == ["k=4, r1", "k=4, r0", "k=8"]


def test_runs_in_folders_of_one_name_are_told_apart(write: Callable[..., RunReader]) -> None:
    runs = [write("a/1", 3), write("b/1", 3), write("b/2", 3)]
    assert {setting.name for setting in settings_of(runs)[0]} == {"a/1", "b/1", "b/2"}


def test_without_a_title_settings_have_the_name_of_their_runs(write: Callable[..., RunReader]) -> None:
    runs = [write("r0", 3), write("r1", 3)]
    assert [setting.name for setting in settings_of(runs, titled=False)[0]] == ["game, r0", "game, r1"]
    settings, _ = settings_of([*runs, write("r2", 3, 8)], titled=False)
    assert [setting.name for setting in settings] == ["game k=4, r0", "game k=4, r1", "game k=8"]


def test_a_run_without_a_configuration_is_a_setting_of_its_own(write: Callable[..., RunReader]) -> None:
    runs = [write("r0", 0), write("r1", 1), write("broken", 2)]
    (runs[2].path / "config.yaml").write_text("a: [")
    settings, _ = settings_of(RunReader(run.path, tolerant=True) for run in runs)
    assert [setting.name for setting in settings] == ["game", "broken"]
    assert settings[1].by_seed == {}
    assert config_differences(settings) == []


def test_seeds_and_places_are_no_differences(write: Callable[..., RunReader]) -> None:
    runs = [write("r0", 0), write("r1", 1)]
    for run, seed in zip(runs, (0, 1), strict=True):
        config = run.config | {"loop": run.config["loop"] | {"task_seed": seed}, "resume": f"x{seed}"}
        (run.path / "config.yaml").write_text(yaml.safe_dump(config))
    (setting,), _ = settings_of(RunReader(run.path, tolerant=True) for run in runs)
    assert config_differences([setting]) == []


def test_what_evaluation_alone_depends_on_is_shown_within_a_setting(write: Callable[..., RunReader]) -> None:
    runs = [write("r0", 0), write("r1", 1, loop=write("r2", 2).config["loop"] | {"test_tasks": 50})]
    (setting,), _ = settings_of(runs)
    assert config_differences([setting]) == [("loop.test_tasks", ["10 | 50"])]


def test_classes_have_their_names_where_these_differ(write: Callable[..., RunReader]) -> None:
    new, old = ({"env": {"_target_": f"troupe.envs.{path}"}} for path in ("grid.Sokoban", "sokoban.Sokoban"))
    settings, _ = settings_of([write("r0", 0, **new), write("r1", 0, **old)])
    assert config_differences(settings) == [
        ("env._target_", ["troupe.envs.grid.Sokoban", "troupe.envs.sokoban.Sokoban"])
    ]
    other = {"env": {"_target_": "troupe.envs.grid.Maze"}}
    settings, _ = settings_of([write("r2", 0, **new), write("r3", 0, **other)])
    assert config_differences(settings) == [("env._target_", ["Sokoban", "Maze"])]
    assert [setting.name for setting in settings] == ["env=Sokoban", "env=Maze"]


@pytest.mark.parametrize(
    ("value", "text"),
    [("troupe.envs.grid.Sokoban", "Sokoban"), ("runs/a.b.c", "runs/a.b.c"), (0.5, "0.5"), (None, "null")],
)
def test_short(value: Any, text: str) -> None:
    assert short(value) == text

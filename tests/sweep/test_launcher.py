"""Launchers hand each job's configuration to the task."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig

from troupe.sweep.launcher import LAUNCHERS, launcher_of


@pytest.fixture(autouse=True)
def unchanged_process() -> Iterator[None]:
    """Hydra sets its configuration and the logging of the whole process."""
    handlers = logging.root.handlers[:]
    yield
    HydraConfig.instance().cfg = None
    logging.root.handlers[:] = handlers


def test_jobs_are_launched_with_their_overrides(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []

    def task(cfg: DictConfig) -> None:
        calls.append((cfg.name, cfg.seed))

    launcher = launcher_of("basic", tmp_path, task, [])
    launcher.launch([["experiment=sokoban_shared", f"seed={seed}"] for seed in (3, 4)], initial_job_idx=0)
    assert calls == [("sokoban_shared", 3), ("sokoban_shared", 4)]


def test_a_wrong_override_of_hydra_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HydraException, match="nonsense"):
        launcher_of("basic", tmp_path, print, ["hydra.launcher.nonsense=1"])


@pytest.mark.parametrize("name", ["basic", "joblib"])
def test_every_launcher_of_this_machine_can_be_made(name: str, tmp_path: Path) -> None:
    assert name in LAUNCHERS
    assert type(launcher_of(name, tmp_path, print, [])).__name__.lower().startswith(name)

"""``troupe push-to-hub``: its keys, and the dry run."""

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, constants

from troupe import Experiment
from troupe.cli.push_to_hub import push
from troupe.errors import ConfigError

SMALL = ["env.horizon=1", "loop.iterations=0", "loop.test_tasks=2", "loop.validation_tasks=1"]
KEYS: dict[str, Any] = {
    **{"run": "nowhere", "repo": "me/team", "checkpoint": "last", "private": False, "license": None},
    **{"dry_run": True, "out": None},
}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"run": None}, "run is missing: give run=DIR"),
        ({"repo": None}, "repo is missing"),
        ({"out": "hub", "dry_run": False}, "out belongs to dry_run=true"),
        ({}, "run: nowhere is not a run directory: there is no such folder"),
    ],
    ids=str,
)
def test_mistakes_are_named(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        push(KEYS | keys)


def test_a_dry_run_writes_the_folder_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody answers
    run = Experiment.compose("sokoban_shared", [*SMALL, f"run_dir={tmp_path / 'run'}"]).train()
    said = push(KEYS | {"run": str(run.path), "out": str(tmp_path / "hub"), "license": "mit"})
    assert said == f"{tmp_path / 'hub'}: a dry run; nothing was uploaded"
    assert ModelCard.load(tmp_path / "hub" / "README.md").data.license == "mit"

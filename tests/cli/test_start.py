"""What starts a command."""

import os
from types import SimpleNamespace

import pytest
from omegaconf import DictConfig

from troupe.cli import start


def test_a_file_that_cannot_be_read_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "imported", lambda name: SimpleNamespace(run_command=lambda cfg: os.listdir(cfg.folder)))
    with pytest.raises(SystemExit, match=r"^error: \[Errno 2\] No such file or directory: 'run/evaluations'$"):
        start.TaskFunction("eval")(DictConfig({"folder": "run/evaluations"}))

"""What starts a command."""

import errno
from types import SimpleNamespace

import pytest
from omegaconf import DictConfig, OmegaConf

from troupe.cli import start


def test_a_file_that_cannot_be_written_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(cfg: DictConfig) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "run/evaluations/e/results.jsonl")

    monkeypatch.setattr(start, "imported", lambda name: SimpleNamespace(run_command=full))
    message = r"^error: \[Errno 28\] No space left on device: 'run/evaluations/e/results\.jsonl'$"
    with pytest.raises(SystemExit, match=message):
        start.TaskFunction("eval")(OmegaConf.create())

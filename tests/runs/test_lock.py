"""A lock has one owner, and is free when the owner is gone, however it went."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from troupe.runs.lock import HeldError, Lock

OWNER = """
import subprocess, sys
from pathlib import Path
from troupe.runs.lock import Lock
lock = Lock(Path(sys.argv[1]), "it")
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
child.wait()
"""


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    first = Lock(tmp_path / "lock", "the run")
    with pytest.raises(HeldError, match=rf"^the run is in use by process {os.getpid()} on \S+$"):
        Lock(tmp_path / "lock", "the run")
    first.release()
    first.release()
    with Lock(tmp_path / "lock", "the run"), pytest.raises(HeldError):
        Lock(tmp_path / "lock", "the run")
    Lock(tmp_path / "lock", "the run").release()


def test_an_owner_that_is_forgotten_lets_go(tmp_path: Path) -> None:
    Lock(tmp_path / "lock", "the run")
    Lock(tmp_path / "lock", "the run").release()


def test_a_dead_owner_locks_nobody_out(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, file], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        child = int(owner.stdout.readline())
    try:
        with pytest.raises(HeldError, match=f"process {owner.pid} on"):
            Lock(file, "the run")
        owner.send_signal(signal.SIGKILL)
        owner.wait(60)
        os.kill(child, 0)  # what it has started is still there
        Lock(file, "the run").release()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with Lock(tmp_path / "lock", "the run"):
        assert "this file system has no locks; see to it that nothing else uses the run" in caplog.text


def test_an_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=r"Input/output error: '.*/lock'"):
        Lock(tmp_path / "lock", "the run")

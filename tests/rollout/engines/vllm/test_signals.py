"""A child of a process that is killed ends with it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ....processes import alive

PARENT = """
import os, subprocess, sys
from functools import partial
from troupe.rollout.engines.vllm.signals import end_with
child = subprocess.Popen(["sleep", "60"], start_new_session=True, preexec_fn=partial(end_with, os.getpid()))
print(child.pid, flush=True)
child.wait()
"""
LATE = "from troupe.rollout.engines.vllm.signals import end_with; end_with(PARENT); print('alive')"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process of its parent's end")


def test_a_child_ends_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
        end = time.monotonic() + 20
        while alive(child):
            assert time.monotonic() < end, "left behind"
            time.sleep(0.01)


@pytest.mark.parametrize(("parent", "code"), [(os.getpid(), 0), (1, -signal.SIGKILL)], ids=["lives", "has ended"])
def test_a_child_that_comes_too_late_ends_at_once(parent: int, code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", LATE.replace("PARENT", str(parent))], capture_output=True, text=True)
    assert ended.returncode == code and ("alive" in ended.stdout) == (code == 0)

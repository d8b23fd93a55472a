"""``troupe play`` from end to end, in a pipe."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ..processes import asleep, until


@pytest.mark.slow
async def test_the_command_works_in_a_pipe_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "troupe", "play", "env=sokoban", "human=[tool,plan]"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) as game:
        assert game.stdin is not None and game.stdout is not None and game.stderr is not None
        game.stdin.write("R\n")
        game.stdin.flush()
        shown = ""
        while not shown.endswith("plan> "):
            shown += (letter := game.stdout.read(1))
            assert letter, game.stderr.read()
        assert "tool: R  (outcome" in shown
        await until(partial(asleep, game.pid))  # it reads: between the prompt and that, Python would miss a signal
        game.send_signal(signal.SIGINT)  # one is enough
        assert game.wait(60) == 1
        assert game.stderr.read() == "interrupted\n"
    assert not list(tmp_path.iterdir())

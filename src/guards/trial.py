"""Files of strangers on trial: read once by :mod:`.trial_program`, in a process with limits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

PROGRAM = Path(__file__).with_name("trial_program.py")
NO_THREADS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Threads and other pools of memory would reserve address space."""


def refusal(
    subject: Literal["tokenizer", "parquet"],
    asked: Mapping[str, Any],
    *,
    memory: int,
    cpu_s: int | None = None,
    wall_s: float | None = None,
) -> str:
    """The reason not to use the ``subject`` that ``asked`` describes, see :mod:`.trial_program`; "" where there is
    none.  ``memory``, in bytes of address space, and ``cpu_s`` hold on Linux.
    """
    question = {"subject": subject, "memory": memory, "cpu_s": cpu_s, **asked}
    try:
        trial = subprocess.run(
            [sys.executable, "-P", str(PROGRAM)],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=wall_s,
            env=os.environ | NO_THREADS,
        )
    except subprocess.TimeoutExpired as error:
        return f"it takes longer than {error.timeout:.0f} s"
    if not trial.returncode:
        return str(json.loads(trial.stdout))
    if cpu_s is not None and trial.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it takes longer than {cpu_s} s"
    if trial.returncode == -signal.SIGABRT:
        return f"it needs more than {memory >> 20} MiB"
    last = (trial.stderr.strip().splitlines() or [f"status {trial.returncode}"])[-1]
    return f"its trial ended with {last}"

"""Commands that an interrupt stops and the same words continue: ``sweep`` and ``reproduce``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from hydra.errors import HydraException

from ..errors import ConfigError, visible
from ..runs.files import RunDirectoryError
from ..runs.index import readable_runs


def name_damaged(folder: Path) -> None:
    """Say on the standard error which runs below ``folder`` cannot be read: they count as missing."""
    for problem in readable_runs(folder)[1]:
        print(visible(problem), file=sys.stderr, flush=True)


def perform(run: Callable[[Sequence[str]], int], arguments: Sequence[str], usage: str | None) -> NoReturn:
    """End the process with the exit status of ``run(arguments)``, or with one line where it was refused or interrupted;
    ``--help`` prints ``usage``."""
    if {"-h", "--help"} & set(arguments):
        print(usage)
        sys.exit(0)
    try:
        status = run(arguments)
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from there")
    except (ConfigError, RunDirectoryError, HydraException) as error:
        sys.exit(f"error: {visible(error)}")
    sys.exit(status)

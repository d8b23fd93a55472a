"""Write a run's report.html again from the files of its directory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import DiskFullError, visible
from ..reports.report import write_report
from ..runs.files import RunDirectoryError


def main(arguments: Sequence[str]) -> None:
    """``troupe report RUN``."""
    parser = argparse.ArgumentParser("troupe report", description=__doc__)
    parser.add_argument("run", metavar="RUN", type=Path, help="a run directory")
    try:
        print(write_report(parser.parse_args(arguments).run))
    except (RunDirectoryError, DiskFullError) as error:
        sys.exit(f"error: {visible(error)}")

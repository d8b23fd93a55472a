"""``python -m troupe.cli.report RUN``: write RUN/report.html again from the run directory's files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..reports.report import write_report
from ..runs.files import RunDirectoryError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m troupe.cli.report", description="Write a run's report.html.")
    parser.add_argument("run", type=Path, help="a run directory")
    try:
        print(write_report(parser.parse_args().run))
    except RunDirectoryError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

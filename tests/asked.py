"""What a run has written, but for what a clock decides, and evaluations as a command line asks for them."""

import io
import json
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from rich.console import Console

from troupe.cli.eval import run as evaluate
from troupe.evaluation.records import EvaluationRecord
from troupe.setup.command_line import with_open_keys


def untimed(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.endswith("_s")}


def rows(run: Path) -> list[dict[str, Any]]:
    """The whole lines of the metrics: a run may be in the middle of one."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [untimed(json.loads(line)) for line in lines if line.endswith("\n")]


def summary(run: Path) -> dict[str, Any]:
    return untimed(json.loads((run / "summary.json").read_text()))


def evaluated(run: Path, *words: str, console: Console | None = None) -> EvaluationRecord:
    """``troupe eval run=RUN ...``."""
    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("eval", overrides=with_open_keys([f"run={run}", *words]))
    return evaluate(cfg, console or Console(file=io.StringIO()))

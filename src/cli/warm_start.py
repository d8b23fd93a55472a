"""Pretrain a small base model of scale=laptop on demonstrations; the same command continues where it was stopped."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import torch

from ..warm_start.curriculum import CURRICULA, Recipe
from ..warm_start.finetune import WarmStart, export

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> None:
    """``troupe warm-start --base NAME``."""
    parser = argparse.ArgumentParser("troupe warm-start", description=__doc__)
    parser.add_argument("--base", choices=sorted(CURRICULA), default="laptop", help="the base model")
    parser.add_argument("--out", type=Path, default=None, help="working folder, resumable (runs/base_model/BASE)")
    parser.add_argument("--export", type=Path, default=None, help="the folder of the finished model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="use torch.compile (needs a C++ compiler)")
    parser.add_argument("--until", type=int, default=None, help="stop at this step; a later call continues")
    for field in fields(Recipe):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=None, help="instead of the recipe's")
    options = vars(parser.parse_args(arguments))
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(options["threads"])
    changes = {field.name: options[field.name] for field in fields(Recipe) if options[field.name] is not None}
    curriculum = CURRICULA[options["base"]]
    recipe = replace(curriculum.recipe, **changes)
    out = options["out"] or Path("runs", "base_model", options["base"])
    start = WarmStart(replace(curriculum, recipe=recipe), out, compiled=options["compile"])
    if (out / "state.pt").exists():
        start.load()
        log.info("continues from step %d", start.step)
    try:
        start.run(options["until"])
    except KeyboardInterrupt:
        start.save()
        log.info("stopped at step %d; the same command continues", start.step)
        return
    if options["export"] is not None and start.step == recipe.steps:
        export(start, options["export"])
        log.info("the base model is in %s", options["export"])

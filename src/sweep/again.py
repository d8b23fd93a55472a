"""The evaluations that a sweep makes of a finished run, besides the run's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, replace

from ..evaluation.request import EvalRequest, own_task_seed
from ..runs.directory import write_atomic
from ..runs.files import SEALED, SWAPPED
from ..runs.fingerprint import code_hash
from ..runs.run import RunReader
from ..setup.actors import ActorFactory
from ..setup.evaluation import TeamSource, build_conditions, run_conditions
from ..setup.trust import Trust
from .outcomes import Outcomes
from .record import SweepRecord


def evaluate_swapped(run: RunReader, sweep: SweepRecord) -> None:
    """Play the run's test tasks with each agent speaking with the other's last weights; writes ``swapped.json``: how
    much of the policies' skill belongs to their role.

    Tasks, seeds and sampling are those of the run's own ``eval/success``, so the two differ in nothing else.  Raises
    :class:`~troupe.errors.ConfigError` where the team is not two agents with a policy each.
    """
    _evaluate(run, SWAPPED, replace(_own_test(run), swap=True))


def evaluate_sealed(run: RunReader, sweep: SweepRecord) -> None:
    """Play test tasks that the sweep's own seed draws, with the last weights; writes ``sealed.json``."""
    assert sweep.sealed is not None  # the plan has the evaluation only with a seed
    _evaluate(run, SEALED, replace(_own_test(run), task_seed=sweep.sealed))


def _own_test(run: RunReader) -> EvalRequest:
    """The request that repeats the run's ``eval/success``."""
    return EvalRequest(
        checkpoint="last",
        split="test",
        tasks=run.config["loop"]["test_tasks"],
        samples=1,
        temperature=("own",),
        seed=run.config["seed"],
        task_seed=own_task_seed(run.config, "test"),
    )


def _evaluate(run: RunReader, file: str, request: EvalRequest) -> None:
    # The run has the training hash of the configuration that was composed here: what it names, the user named.
    conditions = build_conditions(request, TeamSource(run.config, run, Trust.of((), [run.config])))
    [result] = asyncio.run(run_conditions(request, conditions, ActorFactory(run.config["engine"])))
    origin = {"checkpoint": "last", "code": code_hash(run.config), "task_seed": request.task_seed}
    outcomes = Outcomes.of(map(asdict, result.samples[0])).packed()
    write_atomic(run.path / file, json.dumps(result.summary | origin | {"outcomes": outcomes}, indent=2) + "\n")


Evaluate = Callable[[RunReader, SweepRecord], None]
EVALUATIONS: dict[str, Evaluate] = {"swapped": evaluate_swapped, "sealed": evaluate_sealed}
"""By their names in ``evaluations`` of a sweep's yaml (:data:`.options.EVALUATIONS`)."""

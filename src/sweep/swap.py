"""The evaluation of a finished run with its two policies exchanged: how much of their skill belongs to their role."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from ..evaluation.request import EvalRequest, own_task_seed
from ..runs.directory import write_atomic
from ..runs.files import SWAPPED
from ..runs.fingerprint import code_hash
from ..runs.run import Run
from ..setup.actors import ActorFactory
from ..setup.evaluation import TeamSource, build_conditions, run_conditions
from ..setup.trust import Trust


def evaluate_swapped(run: Run) -> None:
    """Play the run's test tasks with each agent speaking with the other's last weights; writes ``swapped.json``.

    Tasks, seeds and sampling are those of the run's own ``eval/success``, so the two differ in nothing else.  Raises
    :class:`~troupe.errors.ConfigError` where the team is not two agents with a policy each.
    """
    request = EvalRequest(
        checkpoint="last",
        split="test",
        tasks=run.config["loop"]["test_tasks"],
        samples=1,
        temperature=("own",),
        seed=run.config["seed"],
        task_seed=own_task_seed(run.config, "test"),
        swap=True,
    )
    # The run has the training hash of the configuration that was composed here: what it names, the user named.
    conditions = build_conditions(request, TeamSource(run.config, run, Trust.of((), [run.config])))
    [result] = asyncio.run(run_conditions(request, conditions, ActorFactory(run.config["engine"])))
    summary = result.summary | {"checkpoint": "last", "code": code_hash(run.config)}
    write_atomic(run.path / SWAPPED, json.dumps(summary, indent=2) + "\n")


EVALUATIONS: dict[str, Callable[[Run], None]] = {"swapped": evaluate_swapped}
"""By their names in ``evaluations`` of a sweep's yaml (:data:`.options.EVALUATIONS`)."""

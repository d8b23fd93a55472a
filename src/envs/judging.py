"""The guard between the texts of models and the code that reads and judges them.

Whatever a model says is an outcome.  A reader returns "malformed", a judge "not equal" for what it refuses.  Where one
raises nevertheless, which is a fault of its code, the message has that outcome too; the fault is counted in the metric
:data:`METRIC` and logged with its place.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import ParamSpec, TypeVar

from .base import StepResult

METRIC = "judge_errors"
"""The key of ``StepResult.info``: how many readers and judges raised in a step."""

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)


class JudgeErrors:
    """The errors that :func:`guarded` caught in one step of a world."""

    def __init__(self) -> None:
        self.count = 0

    def added_to(self, result: StepResult) -> StepResult:
        """``result`` with the count among its metrics."""
        return replace(result, info={**result.info, METRIC: self.count})


_current: ContextVar[JudgeErrors | None] = ContextVar("judge_errors", default=None)


@contextmanager
def judging() -> Iterator[JudgeErrors]:
    """A context, one step of a world, in which :func:`guarded` counts."""
    errors = JudgeErrors()
    token = _current.set(errors)
    try:
        yield errors
    finally:
        _current.reset(token)


def guarded(otherwise: T, judge: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """``judge(*arguments, **named)``, which reads or compares texts of models; ``otherwise`` where it raises.

    Outside of :func:`judging`, where nothing counts, the error is raised.
    """
    errors = _current.get()
    try:
        return judge(*arguments, **named)
    except Exception as error:  # the text may be anything, and no bound on the errors of its readers can be proven
        if errors is None:
            raise
        errors.count += 1
        place = traceback.extract_tb(error.__traceback__)[-1]
        name = getattr(judge, "__qualname__", repr(judge))
        log.warning("%s raised %r (%s:%s); it counts as %r", name, error, place.filename, place.lineno, otherwise)
        return otherwise

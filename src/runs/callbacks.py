"""Callbacks: a user's code that a run calls around rollouts, updates and iterations (docs/your_project.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from ..errors import check_whole, number_of
from ..experience import Episode
from .directory import RunDirectory
from .progress import Progress

Event = Literal["on_start", "on_iteration_start", "on_rollout_end", "on_update_end", "on_iteration_end", "on_end"]


class Training(Protocol):
    """What a callback may rely on in the run that calls it, a :class:`~troupe.loop.TrainLoop`."""

    progress: Progress
    """Iterations so far, completions and tokens spent, the best validation and its iteration."""
    team: Any
    """``team.policies``: those that learn, by name."""

    @property
    def directory(self) -> RunDirectory:
        """``directory.path``: where the run writes."""


class RanksLike(Protocol):
    """What :class:`Callbacks` need of :class:`~troupe.models.learning.ranks.Ranks`."""

    @property
    def first(self) -> bool: ...
    def agreed(self, work: Callable[[], Any]) -> Any: ...
    def from_first(self, value: str) -> str: ...


class Callback:
    """Override the events that you need.  An error ends the run, which can be continued, and names the callback.

    Of several processes (``strategy=ddp``) only the first calls callbacks.  A run that goes on from a checkpoint gives
    them the state that they had there; what happened since happens again.
    """

    stop = False
    """True: the run ends after this iteration, as it does after the last; ``summary.json`` names who stopped it."""

    def on_start(self, run: Training) -> None:
        """Before the evaluation that precedes training, and again where a run is continued."""

    def on_iteration_start(self, run: Training) -> None:
        """Before the rollout."""

    def on_rollout_end(self, run: Training, episodes: Sequence[Episode]) -> None:
        """Before credit; lost episodes are among them.  With ``loop.staleness`` others are under way."""

    def on_update_end(self, run: Training, row: dict[str, Any]) -> None:
        """After the update, with new weights in the engines; ``row``: the iteration's metrics without validation."""

    def on_iteration_end(self, run: Training, row: dict[str, Any]) -> None:
        """After the validation, where one was due (``eval/success``); what is added to ``row`` is written, too."""

    def on_end(self, run: Training, summary: Mapping[str, Any]) -> None:
        """After the last evaluation, with all files written; not after an error or an interrupt."""

    def state_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave."""


class Callbacks:
    """All callbacks of a run, by the name of their key under ``callbacks``, in the order of the configuration.

    ``ranks`` are the processes of the run; all of them learn of an error, and which callback the run is ``stopped_by``.
    """

    def __init__(self, callbacks: Mapping[str, Callback], ranks: RanksLike) -> None:
        self.callbacks, self.ranks, self.stopped_by = callbacks, ranks, ""

    def __call__(self, event: Event, run: Training, *arguments: Any) -> None:
        """Tell all of ``event``.  An error has a note with the callback's key."""
        if self.callbacks:
            self.ranks.agreed(lambda: self._tell(event, run, *arguments))
            stopping = (name for name, callback in self.callbacks.items() if callback.stop)
            self.stopped_by = self.ranks.from_first(next(stopping, ""))

    def _tell(self, event: Event, run: Training, *arguments: Any) -> None:
        for name, callback in self.callbacks.items() if self.ranks.first else ():
            try:
                getattr(callback, event)(run, *arguments)
            except Exception as error:  # the user's code may raise any
                error.add_note(f"in callbacks.{name}, {event}, after {number_of(run.progress.iteration, 'iteration')}")
                raise

    def state_dict(self) -> dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self.callbacks.items()}

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        """One that is new in a continued run begins without a state."""
        for name, callback in self.callbacks.items():
            if name in states:
                callback.load_state_dict(states[name])


class EarlyStop(Callback):
    """Ends a run once ``patience`` validations in a row were not better than the best one before."""

    def __init__(self, patience: int = 3) -> None:
        check_whole("callbacks.early_stop.patience", patience, 1)
        self.patience, self.without = patience, 0

    @property
    def stop(self) -> bool:  # type: ignore[override]
        return self.without >= self.patience

    def on_iteration_end(self, run: Training, row: dict[str, Any]) -> None:
        if "eval/success" in row:
            self.without = 0 if run.progress.best_iteration == run.progress.iteration else self.without + 1

    def state_dict(self) -> dict[str, Any]:
        return {"without": self.without}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.without = state["without"]

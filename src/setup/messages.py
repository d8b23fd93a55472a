"""What a user is told: errors that their own code raises (a world, a credit rule, a logger), and what takes long."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType, TracebackType

from ..runs.own_code import is_own_module

WORLDS = "troupe.envs"
"""Troupe's package of worlds, in which a user of a checkout may have written one."""
MOST = 500
"""Characters of a note that are shown: a message of an agent may be very long."""


def own_error(error: BaseException) -> str | None:
    """``error`` as a short text: its place, the notes that name the world, task and agents, and the frames of the
    user's code; None where that did not raise it.
    """
    frames = _own_frames(error.__traceback__)
    if not frames:
        return None
    frame, line = frames[-1]
    place = f"{frame.f_code.co_filename}:{line}, in {frame.f_code.co_qualname}"
    head = f"{traceback.format_exception_only(error)[0].strip()}, raised at {place}"
    notes = [f"  {note if len(note) <= MOST else note[:MOST] + ' ...'}" for note in getattr(error, "__notes__", [])]
    trace = "".join(traceback.StackSummary.extract(iter(frames)).format())
    return "\n".join([head, *notes, trace.rstrip()])


def _own_frames(trace: TracebackType | None) -> list[tuple[FrameType, int]]:
    """The frames, with their lines, of the user's code, or else of a world, in what Troupe called last."""
    frames = list(traceback.walk_tb(trace))
    names = [frame.f_globals.get("__name__", "") for frame, _ in frames]
    called = max((index for index, name in enumerate(names) if _calls_worlds(name)), default=-1) + 1
    last = list(zip(frames[called:], names[called:], strict=True))
    own = [frame for frame, name in last if is_own_module(name, frame[0].f_code.co_filename)]
    return own or [frame for frame, name in last if name.startswith(WORLDS)]


def _calls_worlds(module: str) -> bool:
    return module.partition(".")[0] == "troupe" and not module.startswith(WORLDS)


log = logging.getLogger(__name__)


@contextmanager
def notice(text: str, after_s: float = 3.0) -> Iterator[None]:
    """A context that logs ``text`` where it lasts longer than ``after_s``."""
    timer = Timer(after_s, log.info, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

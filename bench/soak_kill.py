"""`kill -9` at random moments: the part of bench/soak.py that starts, kills, continues and compares runs."""

from __future__ import annotations

import functools
import inspect
import json
import mmap
import os
import shutil
import signal
import statistics
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import troupe.cli.start
import troupe.cli.train
from troupe.cli.main import main as troupe
from troupe.evaluation.held_out import HeldOut
from troupe.loop import TrainLoop
from troupe.runs.run import RunReader

PHASES = ("start-up", "rollout", "update", "evaluation", "checkpoint", "between")
"""What a life marks that it does; kills are aimed at all but the last."""
MARKED = {
    (TrainLoop, "collect"): "rollout",
    (TrainLoop, "_learn"): "update",
    (HeldOut, "evaluate"): "evaluation",
    (TrainLoop, "_checkpoint"): "checkpoint",
}
"""By class and method: the phase."""
REGIMES = {
    "full": ["experiment=sokoban_specialized", "env.horizon=2"],
    "lora": ["experiment=sokoban_lora", "env.horizon=2"],
    "magrpo": ["experiment=couplet_specialized"],
    "sandboxed": ["experiment=math_specialized"],
}
BUDGET = [
    *("loop.tasks_per_iteration=3", "loop.eval_every=2", "loop.validation_tasks=3", "loop.test_tasks=3"),
    *("loop.checkpoint.every=2", "seed=1"),
]
GONE_S = 20.0
"""Seconds after which the processes that a killed life had started must have ended."""


class Life:
    """A process that runs `troupe train` with ``words``, and marks its phase where this process reads it."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self._mark = mmap.mmap(-1, 1)
        self.status: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os._exit(self._run(words, log))

    def _run(self, words: Sequence[str], log: Path) -> int:
        status = 1
        try:
            os.setsid()  # Ctrl-C is for the parent; and all that it starts can be told from others
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for (kind, name), phase in MARKED.items():
                setattr(kind, name, self._marking(getattr(kind, name), PHASES.index(phase)))
            sys.argv = ["troupe", "train", *words]
            troupe()
            status = 0
        except SystemExit as end:
            print(end.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        return status

    def _marking(self, method: Callable[..., Any], phase: int) -> Callable[..., Any]:
        @contextmanager
        def marked() -> Iterator[None]:
            self._mark[0] = phase
            yield
            self._mark[0] = PHASES.index("between")

        @functools.wraps(method)
        async def awaited(*arguments: Any, **named: Any) -> Any:
            with marked():
                return await method(*arguments, **named)

        @functools.wraps(method)
        def called(*arguments: Any, **named: Any) -> Any:
            with marked():
                return method(*arguments, **named)

        return awaited if inspect.iscoroutinefunction(method) else called

    @property
    def phase(self) -> str:
        """What it does, or did when it ended."""
        return PHASES[self._mark[0]]

    def phases(self) -> Iterator[str]:
        """The phases that it enters, until it has ended."""
        last = None
        while not self.ended():
            if (now := self.phase) != last:
                yield now
                last = now
            time.sleep(0.0005)

    def ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def kill(self) -> None:
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass
class Report:
    """What was done to a run, and where it differs from the undisturbed one."""

    regime: str
    iterations: int
    kills: Counter[str] = field(default_factory=Counter)
    begun_anew: int = 0
    seconds: float = 0.0
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        phases = ", ".join(f"{self.kills[phase]} {phase}" for phase in PHASES)
        verdict = "; ".join(self.differences) or "the same to the bit"
        return (
            f"{self.regime}: {self.kills.total()} kills ({phases}; {self.begun_anew} before the first checkpoint) of a "
            f"run of {self.iterations} iterations, {self.seconds:.0f} s: {verdict}"
        )


def soak(
    regime: str,
    folder: Path,
    kills: int,
    seed: int,
    on_kill: Callable[[], None] = lambda: None,
    *,
    iterations: int | None = None,
    overrides: Sequence[str] = (),
) -> Report:
    """Train undisturbed and killed, below ``folder``; ``on_kill`` is called after every kill.

    ``iterations``: of the run; None: enough for as many kills, wherever they are drawn.  ``overrides``: key=value.
    """
    report, start = Report(regime, iterations=iterations or kills + kills // 5 + 10), time.monotonic()
    words = [*REGIMES[regime], *BUDGET, f"loop.iterations={report.iterations}", *overrides]
    straight, killed, log = folder / "straight", folder / "killed", folder / "log.txt"
    durations = _watch(Life([*words, f"run_dir={straight}"], log), log)
    rng = Random(f"{regime}/{seed}")
    while report.kills.total() < kills:
        life = _begin(words, killed, log, report)
        phase = _strike(life, rng, durations)
        if phase is None:
            raise SystemExit(f"{regime}: a life of the run ended by itself with status {life.status}: {log}")
        report.kills[phase] += 1
        on_kill()
    if not ((killed / "summary.json").exists() and RunReader(killed).finished):  # the last kill may come after the end
        _watch(_begin(words, killed, log, report), log)
    report.differences = differences(killed, straight)
    report.seconds = time.monotonic() - start
    return report


def _begin(words: Sequence[str], path: Path, log: Path, report: Report) -> Life:
    """The next life of the run ``path``: continued, where it has a checkpoint."""
    if (path / "checkpoints" / "last").exists():
        return Life([f"resume={path}"], log)
    report.begun_anew += path.exists()
    shutil.rmtree(path, ignore_errors=True)
    return Life([*words, f"run_dir={path}"], log)


def _watch(life: Life, log: Path) -> dict[str, float]:
    """Let a life come to its end; returns the median duration of each phase, in seconds."""
    try:
        entered = [(phase, time.monotonic()) for phase in life.phases()]
    finally:
        life.kill()
    if life.status:
        raise SystemExit(f"a run ended with status {life.status}: {log}")
    durations: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for (phase, since), (_, until) in pairwise([*entered, ("", time.monotonic())]):
        durations[phase].append(until - since)
    return {phase: statistics.median(each) if each else 0.0 for phase, each in durations.items()}


def _strike(life: Life, rng: Random, durations: dict[str, float]) -> str | None:
    """Kill ``life`` at a random moment; returns its phase then, or None where it had ended before.

    Raises ``AssertionError`` where a process that it had started goes on.
    """
    target, times = rng.choice(PHASES[:-1]), rng.choice([1, 1, 2])
    delay = rng.random() * durations[target]
    if target == PHASES[0]:
        times = 1
    try:
        for phase in life.phases():
            times -= phase == target
            if not times:
                time.sleep(delay)
                break
    finally:
        started = descendants(life.pid)
        life.kill()
    deadline = time.monotonic() + GONE_S
    while left := [pid for pid in started if _stat(pid)[:1] not in ([], ["Z"], ["X"])]:
        assert time.monotonic() < deadline, f"processes {left} outlive the run that started them by {GONE_S:g} s"
        time.sleep(0.01)
    return life.phase if life.status == -signal.SIGKILL else None


def descendants(root: int) -> set[int]:
    """All descendants of a process."""
    parents = {int(name): int(fields[1]) for name in os.listdir("/proc") if name.isdigit() and (fields := _stat(name))}
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def _stat(pid: int | str) -> list[str]:
    """State, parent and what else follows the name in /proc/PID/stat; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def differences(run: Path, other: Path) -> list[str]:
    """What two runs do not have in common, but for times: nothing where they are the same to the bit."""
    found = []
    for name in ("metrics.jsonl", "summary.json"):
        mine, its = ([_untimed(line) for line in _objects(each / name)] for each in (run, other))
        if mine != its:
            keys = [key for a, b in zip(mine, its, strict=False) for key in {*a, *b} if a.get(key) != b.get(key)]
            found.append(f"{name} differs in {', '.join(sorted(set(keys))) or 'its number of lines'}")
    mine, its = ({name: read() for name, read in _files(each).items()} for each in (run, other))
    found += [f"{name} differs" for name in sorted({*mine, *its}) if mine.get(name) != its.get(name)]
    return found + [f"{path.relative_to(run)} is left" for path in run.rglob("*.tmp")]


def _objects(file: Path) -> list[dict[str, Any]]:
    text = file.read_text()
    return [json.loads(each) for each in ([text] if file.suffix == ".json" else text.splitlines())]


def _untimed(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.endswith("_s")}


def _files(run: Path) -> dict[str, Callable[[], bytes]]:
    """Weights, optimizers, random states and sample episodes of a run."""
    checkpoints = [run / "checkpoints" / name for name in ("last", "best")]
    files = [file for folder in checkpoints for file in folder.rglob("*") if file.is_file()]
    files = [file for file in files if file.name not in ("state.json", "checksums.json")]  # they have times
    return {str(file.relative_to(run)): file.read_bytes for file in [*files, *(run / "episodes").iterdir()]}

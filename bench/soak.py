"""Long and rough runs: memory over hours, and `kill -9` at random moments.

    python bench/soak.py kill                       # 50 kills of each of four regimes
    python bench/soak.py memory --hours 2 --experiment math_specialized
    python bench/soak.py verdict FOLDER/memory.jsonl

**kill** trains a small run undisturbed, and a second one that is killed --kills times, each time in a phase, at its
n-th time and after a share of its duration that are drawn from --seed, and continued with `resume`.  Then it runs to
its end.  Both must have the same weights (last and best), random states, metrics, episodes and summary, but for times;
no process may be left.  A life is a fork of this process, which has imported everything, and runs the whole command
`troupe train`.  Exits with 1 where something differs.  Ctrl-C ends it; nothing is left but its folder.

**memory** trains for --hours with `troupe train`, at a learning rate so small that messages keep their lengths, and
appends a line to FOLDER/memory.jsonl whenever the run has written the metrics of an iteration: the memory of the
trainer and all processes below it, in MiB.  A process counts with its anonymous and shared memory, of which it has in
common with others it counts its share (Pss_Anon and Pss_Shmem).  Files that are mapped, such as libraries, are not
judged: the share of them depends on whoever else has them open.

*Flat within 2 %* means, of the samples after the first quarter of the time (the warm-up):

- rise: the least-squares line of the samples over time rises by at most 2 % of their median from its first to its
  last sample; and
- peak: the largest median over a fifth of the samples in a row is at most 2 % above the median of all.  (Single
  samples vary by 3 to 4 %, with the sizes of the batches that the iteration happened to have.)

Exits with 1 where it is not flat.  Ctrl-C ends the run and judges what there is.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from soak_kill import REGIMES, descendants, soak

WARM_UP = 0.25
"""Share of the time that is not judged."""
BLOCKS = 5
"""One in so many samples, in a row, are those whose median is a peak."""
LEAST = 20
"""Samples of a verdict."""
FLAT = 0.02
POLL_S = 0.02

POLICIES = {"math_specialized": ("tool", "reasoner"), "sokoban_specialized": ("tool", "plan")}
"""The experiments whose memory is measured: one runs programs in the sandbox, one does not."""


# ---- memory -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flatness:
    """Whether samples of memory are flat; MiB, and shares of the median."""

    samples: int
    hours: float
    median: float
    rise: float
    peak: float

    @property
    def flat(self) -> bool:
        return self.rise <= FLAT and self.peak <= FLAT

    def __str__(self) -> str:
        return (
            f"{'flat' if self.flat else 'NOT FLAT'}: {self.samples} samples over {self.hours:.2f} h after warm-up, "
            f"median {self.median:.1f} MiB, rise {self.rise:+.2%}, peak {self.peak:+.2%} (at most {FLAT:.0%})"
        )


def flatness(samples: Sequence[tuple[float, float]]) -> Flatness:
    """Of (seconds, MiB) in order of time.  Raises ``ValueError`` where too few are left after warm-up."""
    begin, end = samples[0][0], samples[-1][0]
    kept = [(at, mib) for at, mib in samples if at - begin >= WARM_UP * (end - begin)]
    if len(kept) < LEAST:
        raise ValueError(f"{len(kept)} samples after warm-up are too few for a verdict: at least {LEAST}")
    times, values = [at for at, _ in kept], [mib for _, mib in kept]
    median, span = statistics.median(values), times[-1] - times[0]
    slope = statistics.linear_regression(times, values).slope
    block = len(values) // BLOCKS
    peak = max(statistics.median(values[i : i + block]) for i in range(len(values) - block + 1))
    return Flatness(len(kept), span / 3600, median, slope * span / median, peak / median - 1)


def resident(pid: int) -> Counter[str]:
    """The proportional set size of a process, MiB, in all and by kind; nothing of a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return Counter()
    sizes = {name: int(size.split()[0]) / 1024 for name, _, size in (line.partition(":") for line in lines[1:])}
    return Counter(judged_mib=sizes["Pss_Anon"] + sizes["Pss_Shmem"], files_mib=sizes["Pss_File"])


def sample(trainer: int) -> dict[str, Any]:
    """The memory of a process tree."""
    own, below = resident(trainer), [resident(pid) for pid in descendants(trainer)]
    return {
        **sum(below, own),
        "trainer_mib": own["judged_mib"],
        "processes": 1 + len(below),
        "descriptors": len(os.listdir(f"/proc/{trainer}/fd")),
    }


def memory(options: argparse.Namespace) -> int:
    """Train and sample; returns the exit status."""
    folder = Path(options.out or tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "run"
    log, seconds = folder / "log.txt", 3600 * options.hours
    print(f"{options.experiment}: {folder}", flush=True)
    command = [sys.executable, "-m", "troupe", "train", f"experiment={options.experiment}", f"run_dir={run}"]
    command += ["loop.iterations=1000000000"]
    command += [f"policies.{name}.optimizer.lr=1e-5" for name in POLICIES[options.experiment]]
    with log.open("w") as output:
        command += options.overrides
        trainer = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)  # Ctrl-C once
    samples: list[tuple[float, float]] = []
    metrics, size, start = run / "metrics.jsonl", 0, time.monotonic()
    try:
        with bar() as progress, (folder / "memory.jsonl").open("w") as file:
            task = progress.add_task("", total=seconds, detail="")
            while (now := time.monotonic() - start) < seconds and trainer.poll() is None:
                time.sleep(POLL_S)
                if not metrics.exists() or (larger := metrics.stat().st_size) == size:
                    continue
                size = larger
                row = {"seconds": now, "iteration": len(samples) + 1, **sample(trainer.pid)}
                samples.append((now, row["judged_mib"]))
                print(json.dumps(row), file=file, flush=True)
                detail = f"{len(samples)} iterations, {row['judged_mib']:.1f} MiB"
                progress.update(task, completed=now, detail=detail)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        ended = trainer.poll()
        if ended is None:
            trainer.terminate()  # a run in the background may ignore SIGINT
            trainer.wait()
    if ended is not None:
        print(f"the run ended by itself with status {ended}: {log}", file=sys.stderr)
        return 1
    verdict = flatness(samples)
    (folder / "verdict.txt").write_text(f"{options.experiment}: {verdict}\n")
    print(verdict)
    return not verdict.flat


def read_samples(path: Path) -> list[tuple[float, float]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["seconds"], row["judged_mib"]) for row in rows]


# ---- kill ---------------------------------------------------------------------------------------------------------


def kill(options: argparse.Namespace) -> int:
    """Kill and continue runs of each regime; returns the exit status."""
    folder, regimes = Path(options.out or tempfile.mkdtemp(prefix="soak-")), options.regimes.split(",")
    print(f"the runs are in {folder}", flush=True)
    reports = []
    with bar() as progress:
        task = progress.add_task("", total=options.kills * len(regimes), detail="")
        for regime in regimes:
            (folder / regime).mkdir(parents=True)
            progress.update(task, detail=regime)
            given = {"iterations": options.iterations, "overrides": options.overrides}
            on_kill = functools.partial(progress.advance, task)
            reports.append(soak(regime, folder / regime, options.kills, options.seed, on_kill, **given))
            progress.console.print(str(reports[-1]), soft_wrap=True, highlight=False)
    return any(report.differences for report in reports)


# ---- the command --------------------------------------------------------------------------------------------------


def bar() -> Progress:
    """Progress with the time that is left."""
    detail = TextColumn("{task.fields[detail]}")
    return Progress(BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn(), detail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("kill", help="does a run that is killed and continued end in the same weights?")
    command.add_argument("--kills", type=int, default=50)
    command.add_argument("--regimes", default=",".join(REGIMES), help="separated by commas")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--iterations", type=int, help="of each run; by default enough for as many kills")
    command.add_argument("--out", help="a folder for the runs; a new one in the folder for temporary files")
    command.add_argument("overrides", nargs="*", help="key=value")
    command.set_defaults(work=kill)
    command = commands.add_parser("memory", help="is memory flat over hours?")
    command.add_argument("--hours", type=float, default=2.0)
    command.add_argument("--experiment", choices=POLICIES, default="math_specialized")
    command.add_argument("--out", help="a folder for run and samples; a new one in the folder for temporary files")
    command.add_argument("overrides", nargs="*", help="key=value")
    command.set_defaults(work=memory)
    command = commands.add_parser("verdict", help="judge samples again")
    command.add_argument("file", type=Path)
    command.set_defaults(work=lambda options: _say(flatness(read_samples(options.file))))
    options = parser.parse_args()
    try:
        sys.exit(options.work(options))
    except KeyboardInterrupt:
        sys.exit("interrupted")


def _say(verdict: Flatness) -> int:
    print(verdict)
    return not verdict.flat


if __name__ == "__main__":
    main()

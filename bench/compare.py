"""All comparisons with peers: ``bench/results.json``, and one page with the same figures, ``bench/results.md``.

Each figure is ``{n, min, median, max}`` over pairs that are measured one after the other: times in one process, memory
in a fresh process for each side (two pairs, whatever ``--pairs`` says).  Above 1 Troupe is faster, or, where the name
says memory, needs more; `two_pools_vs_shared` is a time.  Shares are of the time of ten iterations, `growth_...` are
exponents.  Beside each figure stand the commit, the date, the clock, the processor and the versions that it was
measured with.
``--only`` measures some of them again and leaves the others as they are.  ``--part vllm`` measures those that need
vLLM's environment, ``--part peers`` the others; `make bench` does both.  A new comparison is one more line in
:data:`COMPARISONS`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import engine
import magrpo
import team_time
import torch
import transformers
import update

RESULTS = Path(__file__).with_name("results.json")

VERDICTS = ("**missed**", "met by the median, not by all", "met")
"""On a bar; the worst first."""
Measure = Callable[[argparse.Namespace], Sequence[float]]


@dataclass(frozen=True)
class Comparison:
    """``what`` is measured and how; the bar of its median, ``least`` or ``most``; the package that it ``needs``."""

    what: str
    measure: Measure
    least: float | None = None
    most: float | None = None
    needs: str | None = None
    timed: bool = True

    @property
    def part(self) -> str:
        return "vllm" if self.needs == "vllm" else "peers"

    @property
    def bar(self) -> str:
        if self.least is not None:
            return f"at least {self.least:g}"
        return "" if self.most is None else f"at most {self.most:g}"

    def meets(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def verdict(self, result: Mapping[str, Any]) -> str:
        """Whether the median meets the bar, and every pair; "" where there is none."""
        if not self.bar:
            return ""
        if not self.meets(result["median"]):
            return VERDICTS[0]
        return VERDICTS[2] if self.meets(result["min"]) and self.meets(result["max"]) else VERDICTS[1]


def rollout(setting: str, what: str) -> Comparison:
    text = f"Tokens per second over generate's{what}"
    return Comparison(
        text, lambda given: engine.measure(setting, given.pairs, engine.CLOCKS[given.clock]), engine.BAR[setting]
    )


def update_time(setting: str, what: str, least: float) -> Comparison:
    return Comparison(
        f"Seconds of TRL's update over ours{what}",
        lambda given: update.time_pairs(setting, given.pairs, engine.CLOCKS[given.clock]),
        least,
        needs="trl",
    )


def update_memory(setting: str, what: str) -> Comparison:
    return Comparison(
        f"Our memory above the model over TRL's{what}",
        lambda given: [update.memory_ratio(setting, given.threads) for _ in range(2)],
        most=0.5,
        needs="trl",
        timed=False,
    )


def magrpo_time(setting: str, what: str, least: float | None = None) -> Comparison:
    return Comparison(
        f"Seconds of CoMLRL's iteration over ours, 2 agents: {what}",
        lambda given: magrpo.time_pairs(setting, given.pairs, engine.CLOCKS[given.clock]),
        least,
        needs="comlrl",
    )


def share(phase: str, what: str) -> Comparison:
    return Comparison(
        f"Share of ten iterations' time: {what}",
        lambda given: team_time.phases(given.pairs, engine.CLOCKS[given.clock])[phase],
        0.95 if phase == "explained" else None,
    )


def growth(phase: str, size: str, what: str) -> Comparison:
    return Comparison(
        f"Exponent of {phase} time in {what}",
        lambda given: team_time.growth(size, given.pairs, engine.CLOCKS[given.clock])[phase],
    )


GROWS = {"k": "K", "turns": "turns", "agents": "agents", "prompt": "prompt length", "vocabulary": "vocabulary"}
COMPARISONS = {
    "rollout_short_vs_hf": rollout("short", ": prompt 128, completion 32, K 4"),
    "rollout_long_vs_hf": rollout("long", ": prompt 1024, completion 128, K 8"),
    "rollout_smollm2_vs_hf": rollout("smollm2", ", SmolLM2-135M: prompt 256, completion 32, K 4"),
    "rollout_coder_vs_hf": rollout("coder", ", 0.5B in bfloat16: prompt 128, completion 32, K 4"),
    "rollout_vs_vllm_cpu": Comparison(
        "Tokens per second over those of vLLM's LLM.generate: prompt 128, completion 32, K 4",
        lambda given: engine.against_vllm("short", given.pairs, engine.CLOCKS[given.clock]),
        needs="vllm",
    ),
    "update_vs_trl": update_time("long", ": prompt 1024, completion 128, K 8", 5.0),
    "update_short_vs_trl": update_time("short", ": prompt 128, completion 32, K 4", 3.5),
    "update_smollm2_vs_trl": update_time("smollm2", ", SmolLM2-135M: prompt 256, completion 64, K 4", 2.3),
    "update_coder_vs_trl": update_time("coder", ", adapters on 0.5B in bfloat16: prompt 256, completion 128, K 4", 2.5),
    "update_memory_vs_trl": update_memory("long", ": prompt 1024, completion 128, K 8"),
    "update_smollm2_memory_vs_trl": update_memory("smollm2", ", SmolLM2-135M: prompt 256, completion 64, K 4"),
    "update_coder_memory_vs_trl": update_memory(
        "coder", ", adapters on 0.5B in bfloat16: prompt 256, completion 128, K 4"
    ),
    "magrpo_vs_comlrl": magrpo_time("short", "8 tasks, prompt 128, completion 32, K 4", 20.0),
    "magrpo_turns_vs_comlrl": magrpo_time(
        "turns", "4 tasks, two turns (a tree of K + K^2), prompt 128, completion 32, K 4"
    ),
    "magrpo_long_vs_comlrl": magrpo_time("long", "2 tasks, prompt 1024, completion 128, K 8"),
    "two_pools_vs_shared": Comparison(
        "Seconds of an iteration with two specialised pools over one shared, equal samples",
        lambda given: team_time.pools(given.pairs, engine.CLOCKS[given.clock]),
        most=1.0,
    ),
    **{f"share_{phase}": share(phase, what) for phase, what in team_time.SHARES.items()},
    **{
        f"growth_{phase}_{size}": growth(phase, size, what)
        for size, what in GROWS.items()
        for phase in ("rollout", "update")
    },
}


def summary(values: Sequence[float]) -> dict[str, Any]:
    """{n, min, median, max}"""
    return {"n": len(values), "min": min(values), "median": statistics.median(values), "max": max(values)}


def commit() -> str:
    """Of the checkout, with ``-dirty`` where anything but the results differs from it."""
    git = ["git", "-C", str(RESULTS.parent)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True, check=True)
    but = [f":!{RESULTS.name}", f":!{RESULTS.stem}.md"]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "..", *but], check=False).returncode
    return head.stdout.strip() + ("-dirty" if changed else "")


HEAD = """# Comparisons with peers

`make bench` measures all of them, or some (`make bench args="--only update_vs_trl --clock cpu --pairs 3"`), and writes
this page and `results.json`. Without arguments it takes five pairs and wall time. There is a column for each processor,
whose speed of matrix products is its own. A cell is the median (the least to the most); n pairs, the clock (CPU time on
a machine that other programs shared; none for memory), the day and the commit, which up to `fc1d77e` is the one that
added the figure. Figures of different commits are not figures of one version. A bar is what the median was to reach,
and met where it is on every processor.

Family 25, model 17 is a Zen 4, family 6, model 207 an Intel Xeon without AMX: on both MKL multiplies as fast as oneDNN,
hence the peers do. At the rate of large products on the former, 109 GFLOP/s, the products of `update_short_vs_trl` take
0.19 of our 0.27 s and 0.47 of TRL's 0.79 s (which reads each prompt K times), those of `rollout_short_vs_hf` 0.07 of
our 0.19 s and 0.16 of generate's 0.53 s; in `rollout_long_vs_hf` two fifths of our time are attention's products, at
half of that rate.

"""
UNNAMED = "not recorded"


def processor() -> str:
    """The name that the system has for the processor, with family and model, which differ where names do not."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    of = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if "model name" not in of:
        return platform.processor()
    return f"{of['model name']}, family {of.get('cpu family')}, model {of.get('model')}"


def elsewhere(before: Mapping[str, Any] | None, here: str) -> dict[str, Any]:
    """The newest figures of each other processor, of the result that stood there ``before``; not those of its name
    alone, of the time before family and model.
    """
    if before is None:
        return {}
    one = {key: value for key, value in before.items() if key != "elsewhere"}
    others = [
        other
        for other in (one, *before.get("elsewhere", ()))
        if other.get("processor") not in (here, here.partition(", family")[0], None)
    ]
    return {"elsewhere": others} if others else {}


def cell(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return ""
    median, least, most = (f"{result[key]:.2f}" for key in ("median", "min", "max"))
    how = ", ".join(filter(None, (str(result["n"]), result["clock"], result["date"], result["commit"])))
    return f"**{median}** ({least} to {most}); {how}"


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The results as Markdown."""
    by_processor = {
        name: {one.get("processor") or UNNAMED: one for one in (result, *result.get("elsewhere", ()))}
        for name, result in results.items()
    }
    processors = sorted(
        {each for every in by_processor.values() for each in every}, key=lambda each: (each == UNNAMED, each)
    )
    rows, missed = [], []
    for name, every in by_processor.items():
        comparison = COMPARISONS[name]
        verdicts = [comparison.verdict(one) for one in every.values()]
        verdict = next((each for each in VERDICTS if each in verdicts), "")
        cells = [cell(every.get(each)) for each in processors]
        rows.append(f"| `{name}`: {results[name]['what']} | {comparison.bar} | {verdict} | {' | '.join(cells)} |")
        low = [
            f"{one['median']:.2f} on {each}" for each, one in every.items() if comparison.verdict(one) == VERDICTS[0]
        ]
        missed += [f"`{name}` ({'; '.join(low)}; {comparison.bar})"] if low else []
    absent = [
        f"`{name}`" + (f" ({comparison.bar})" if comparison.bar else "")
        for name, comparison in COMPARISONS.items()
        if name not in results
    ]
    machines = sorted({result["machine"] for result in results.values()})
    return HEAD + "\n".join(
        [
            f"| | bar | | {' | '.join(processors)} |",
            "| --- " * (len(processors) + 3) + "|",
            *rows,
            "",
            f"**Missed bars**: {', '.join(missed) or 'none'}.",
            "",
            f"**Not measured**: {', '.join(absent) or 'nothing'}.",
            "",
            *(f"Measured with {machine}." for machine in machines),
            "",
        ]
    )


def chosen(parser: argparse.ArgumentParser, given: argparse.Namespace) -> list[str]:
    """The comparisons that the arguments ask for; ends the program where this environment cannot measure them."""
    names = [name for name in given.only or COMPARISONS if given.part in (None, COMPARISONS[name].part)]
    for name in names:
        needs = COMPARISONS[name].needs
        if needs is not None and find_spec(needs) is None:
            parser.error(
                f"{name} needs the package {needs}, which this environment has not; make bench "
                f'args="--only {name}" measures it where it is'
            )
    return names


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(COMPARISONS), action="append", metavar="NAME")
    parser.add_argument("--part", choices=("peers", "vllm"), help="those that are measured in this environment")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--clock", choices=sorted(engine.CLOCKS), default="wall", help="cpu: on a shared machine")
    given = parser.parse_args(words)
    names = chosen(parser, given)
    torch.set_num_threads(given.threads)
    transformers.utils.logging.set_verbosity_error()
    code = commit()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, {platform.machine()}"
    for name in names:
        comparison = COMPARISONS[name]
        result = summary(comparison.measure(given)) | {
            "what": comparison.what,
            "clock": given.clock if comparison.timed else None,
            "date": datetime.now(UTC).date().isoformat(),
            "commit": code,
            "processor": processor(),
            "machine": f"{versions}, {given.threads} threads",
        }
        # Read only now: the part in vLLM's environment may write its results meanwhile.
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = result | elsewhere(results.get(name), result["processor"])
        print(name, json.dumps(results[name]), flush=True)
        ordered = {key: results[key] for key in COMPARISONS if key in results}
        RESULTS.write_text(json.dumps(ordered, indent=2) + "\n")
        RESULTS.with_suffix(".md").write_text(page(ordered))


if __name__ == "__main__":
    main()

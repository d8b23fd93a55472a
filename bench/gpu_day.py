"""One script for a machine with a GPU: what agrees, and how fast it is, most valuable first, within ``--minutes``.

    python3 bench/gpu_day.py [--minutes 12] [--model FOLDER] [--data FILE] [--stage NAME ...] [--out FOLDER]

``coder``      MAGRPO, a pair of LoRA adapters on the model in FOLDER (Qwen2.5-Coder-0.5B-Instruct), HumanEval's
               published slices in FILE, 16 tasks, K 8, 256 tokens: ten iterations after one that warms up
``agreement``  log-probabilities against transformers, whole models and adapters (bench/vllm_gpu.py, as the next two)
``rollout``    the engine beside ``LLM.generate`` of the same requests all at once, on the model in FOLDER
``sleep``      levels 1 and 2
``team``       two LoRA policies on a Qwen3 of random weights (bench/gpu_team.py): 0.6B, 1.7B
``fsdp2``      one process with fsdp2
``tests``      the default tests
``table``      OUT/table.md, written anew after every stage: what was measured, and what failed

It runs in the Python that has torch and, for all but `fsdp2` and `tests`, vLLM; ``--setup`` makes such an environment,
`.venv-gpu-day`, beside the machine's torch, from PyPI.  A stage that exceeds its limit is ended, and the next begins;
one for which no time is left is named.  ``--rehearse`` runs all of it at tiny sizes on a CPU, with the torch engine
where there is no vLLM.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
VENV = ROOT / ".venv-gpu-day"
VLLM = {"2.11": "0.22.1", "2.13": "0.32.0"}
"""By torch, the vLLM to install; as src/rollout/engines/vllm/versions.py."""
LEAST_S = 20
"""Less is not worth a stage's start."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a Qwen3 with tied embeddings."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @property
    def qwen3(self) -> dict[str, int]:
        """As arguments of transformers' ``Qwen3Config``."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
        }


SHAPES = {
    "0.6b": Shape(28, 1024, 3072, 16, 8, 128, 151_936),
    "1.7b": Shape(28, 2048, 6144, 16, 8, 128, 151_936),
    "tiny": Shape(2, 64, 128, 4, 2, 16, 512),
}


@dataclass(frozen=True)
class Stage:
    """A command that ends within ``limit_s`` seconds, or is ended."""

    name: str
    command: tuple[str, ...]
    limit_s: int


def stages(arguments: argparse.Namespace, vllm: bool) -> list[Stage]:
    """All of them, most valuable first; ``vllm``: whether it is there."""
    small, out = arguments.rehearse, arguments.out
    engine = "vllm" if vllm else "torch"
    checks = (sys.executable, str(ROOT / "bench" / "vllm_gpu.py"), *(("--device", "cpu", "--small") if small else ()))
    model = ("--model", str(arguments.model)) if arguments.model else ()
    team = (sys.executable, str(ROOT / "bench" / "gpu_team.py"), "--engine", engine)
    teams = [("tiny", 2)] if small else [("0.6b", 4), ("1.7b", 4)]
    fsdp = (*TROUPE, "experiment=sokoban_specialized", "strategy=fsdp2", *FEW, f"run_dir={out / 'fsdp2'}")
    tests = (sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "-n", str(os.cpu_count() or 1))
    found = [
        Stage("coder", (*TROUPE, *coder(arguments, engine), f"run_dir={out / 'coder'}"), 300),
        Stage("agreement", (*checks, "agreement"), 150),
        Stage("rollout", (*checks, "rollout", *model), 150),
        Stage("sleep", (*checks, "sleep"), 150),
        *(
            Stage("team", (*team, "--shape", shape, "--iterations", str(n), "--out", str(out / f"team-{shape}")), 150)
            for shape, n in teams
        ),
        Stage("fsdp2", fsdp, 90),
        Stage("tests", (*tests, str(ROOT / "tests" / "envs" / "test_fences.py")) if small else tests, 400),
    ]
    return [stage for stage in found if vllm or stage.name not in ("agreement", "rollout", "sleep")]


TROUPE = (sys.executable, "-m", "troupe", "train")
FEW = ("loop.iterations=2", "loop.tasks_per_iteration=4", "loop.validation_tasks=4", "loop.test_tasks=4")


def coder(arguments: argparse.Namespace, engine: str) -> tuple[str, ...]:
    """The words of `coder`."""
    words = ("experiment=code_collab_specialized", "regime=lora", f"engine={engine}", "env.horizon=1")
    if arguments.rehearse:
        return (*words, *FEW)
    if not (arguments.model and arguments.data):
        sys.exit("coder needs --model FOLDER and --data FILE")
    words += ("scale=paper_magrpo", f"env.data.train.path={arguments.data}", f"env.data.test.path={arguments.data}")
    for policy in ("aux", "main"):  # the model follows instructions, the publication's does not
        words += (f"policies.{policy}.base={arguments.model}", f"policies.{policy}.prompts=null")
    words += ("loop.tasks_per_iteration=16", "algorithm.sampler.k=8", "loop.iterations=11", "loop.eval_every=100")
    return (*words, "loop.completions=0", "scale.max_tokens=16384")


def setup(python: str, torch: str) -> list[Stage]:
    """The environment; ``python`` is the machine's, ``torch`` its version."""
    own = str(VENV / "bin" / "python")
    pip = (own, "-m", "pip", "install", "--disable-pip-version-check", "-q", f"torch=={torch}")
    packages = (f"vllm=={vllm_for(torch)}", "-e", f"{ROOT}[data]", "pytest>=9,<10", "pytest-asyncio>=1.3,<2")
    return [
        Stage("setup", (python, "-m", "venv", "--system-site-packages", str(VENV)), 60),
        Stage("setup", (*pip, *packages, "pytest-xdist>=3,<4"), 540),
    ]


def vllm_for(torch: str) -> str:
    """The vLLM for this ``torch``.  Raises ``SystemExit`` where none was tested."""
    for version, vllm in VLLM.items():
        if torch.startswith(f"{version}."):
            return vllm
    sys.exit(f"torch {torch}: Troupe was tested with vLLM beside torch {' and '.join(VLLM)} alone")


def run(stage: Stage, log: Path) -> str | None:
    """Run ``stage`` in a process group of its own; why it failed, or None."""
    print(f"{stage.name}: {shlex.join(stage.command)}", flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("a") as output:
        process = subprocess.Popen(
            stage.command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True, env=environment
        )
        try:
            code = process.wait(stage.limit_s)
        except subprocess.TimeoutExpired:
            return f"ended after {stage.limit_s} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return None if code == 0 else f"ended with {code}, see {log}"


# ---- the table ----------------------------------------------------------------------------------------------------


def measured(folder: Path) -> dict[str, str]:
    """The row of a run's ``folder``: medians over its iterations but the first, which warms up."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]
    if not rows:
        return {}

    def median(*keys: str) -> float:
        return statistics.median(sum(row.get(key, 0.0) for key in keys) for row in rows)

    speed = statistics.median(row["rollout/tokens"] / row["time/rollout_s"] for row in rows)
    learnt = statistics.median(
        (row["rollout/tokens"] + row["rollout/prompt_tokens"]) / row["time/update_s"] for row in rows
    )
    phases = [key for key in rows[-1] if key.startswith("time/") and key.endswith("_s") and "validation" not in key]
    found = {
        "run": folder.name,
        "iterations": str(len(rows)),
        "tokens": f"{median('rollout/tokens'):,.0f}",
        "rollout s": f"{median('time/rollout_s'):.2f}",
        "rollout tokens/s": f"{speed:,.0f}",
        "update s": f"{median('time/update_s'):.2f}",
        "update tokens/s": f"{learnt:,.0f}",
        "update MFU": ", ".join(f"{100 * median(key):.1f} %" for key in rows[-1] if key.endswith("/mfu")),
        "weights s": f"{median('time/load_s'):.2f}",
        "probe and trees s": f"{median('time/probe_s', 'time/trees_s'):.2f}",
        "iteration s": f"{statistics.mean(sum(row.get(key, 0.0) for key in phases) for row in rows):.2f}",
    }
    if (summary := folder / "summary.json").exists():
        values = json.loads(summary.read_text())
        for key in ("eval_before/return", "eval/return", "eval_before/success", "eval/success"):
            if key in values:
                found[key] = f"{values[key]:.3f}"
    if (about := folder / "about.json").exists():
        found |= json.loads(about.read_text())
    return found


def table(out: Path, failed: Mapping[str, str]) -> str:
    """What the stages in ``out`` have measured, as Markdown; ``failed`` says, by stage, why."""
    found = [measured(file.parent) for file in sorted(out.glob("*/metrics.jsonl"))]
    names = list(dict.fromkeys(itertools.chain(*found)))
    lines = [f"# {device()}", "", f"| {' | '.join(names)} |", "| --- " * len(names) + "|"] if found else [device()]
    lines += [f"| {' | '.join(row.get(name, '') for name in names)} |" for row in found]
    logs = [line for log in sorted(out.glob("*.log")) for line in log.read_text(errors="replace").splitlines()]
    checks = [line for line in logs if line.startswith(("| agreement ", "| sleep ", "| rollout "))]
    if checks:
        lines += ["", "| check | what | result |", "| --- | --- | --- |", *checks]
    lines += ["", *(line for line in logs if re.search(r"\d+ passed.* in ", line))]
    lines += ["", *(f"- **{name}** failed: {why}" for name, why in failed.items())]
    return "\n".join(lines).rstrip() + "\n"


def device() -> str:
    """The GPU, and torch; asked of another process, which leaves nothing on the GPU."""
    code = (
        "import torch; g = torch.cuda.is_available(); "
        "print((torch.cuda.get_device_name(0) if g else 'CPU') + ', torch ' + torch.__version__)"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", action="append", metavar="NAME")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu_day")
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--model", type=Path, help="a folder with the model of coder and rollout")
    parser.add_argument("--data", type=Path, help="HumanEval, a file")
    parser.add_argument("--setup", action="store_true", help="make the environment, and go on in it")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, on a CPU")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.setup:
        for stage in setup(sys.executable, machine_torch()):
            if why := run(stage, arguments.out / "setup.log"):
                sys.exit(f"setup failed: {why}")
        words = [word for word in sys.argv[1:] if word != "--setup"]
        os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), __file__, *words])
    every = stages(arguments, vllm=importlib.util.find_spec("vllm") is not None)
    if unknown := set(arguments.stage or ()) - {stage.name for stage in every}:
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(stage.name for stage in every)}")
    ends, failed = time.monotonic() + 60 * arguments.minutes, dict[str, str]()
    for number, stage in enumerate(every):
        if arguments.stage and stage.name not in arguments.stage:
            continue
        left = int(ends - time.monotonic())
        why: str | None = "no time was left"
        if left > LEAST_S:
            begun = time.monotonic()
            why = run(replace(stage, limit_s=min(stage.limit_s, left)), arguments.out / f"{number}-{stage.name}.log")
            print(f"  {time.monotonic() - begun:.0f} s{f': {why}' if why else ''}", flush=True)
        if why is not None:
            failed[f"{stage.name} ({number})"] = why
        (arguments.out / "table.md").write_text(table(arguments.out, failed))
    print((arguments.out / "table.md").read_text())
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def machine_torch() -> str:
    """Raises ``SystemExit`` where this Python has no torch."""
    ask = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{sys.executable} has no torch")
    return done.stdout.strip().partition("+")[0]


if __name__ == "__main__":
    main()

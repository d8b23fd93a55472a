"""One script for a machine with a GPU and torch 2.11 (or 2.13), under 40 minutes from a bare checkout.  **Not run on a
GPU**: what a CPU can check of it is checked by tests/test_gpu_day.py.

    python3 bench/gpu_day.py [--dry-run] [--stage NAME ...] [--out FOLDER] [--peak-tflops N]

``setup``  `.venv-gpu-day` beside the machine's own torch, with the vLLM that was tested with it
``test``   what `make test-gpu` runs: log-probabilities, sleep levels 1 and 2, a run, an update's seconds
``team``   two LoRA policies on a Qwen3 of random weights, trained for a few iterations with vLLM on prompts of 512 and
           completions of 256 tokens, 32 tasks, K 8: 0.6B without sleep and with level 1, 1.7B with level 1
``table``  FOLDER/table.md: the rows that `team` has measured, the lines of `test` (sleep levels among them), and what
           failed

A stage that exceeds its limit is ended, and the next begins; the last line says what failed.  MFU counts operations of
the model alone: 2 per weight and token, the head where tokens are sampled or scored, 4 * D per query, key and query
head; a backward pass of adapters costs one more pass (no gradients of the base), and 6 per number of the adapter and
token; nothing for recomputation.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
VENV = ROOT / ".venv-gpu-day"
VLLM = {"2.11": "0.22.1", "2.13": "0.32.0"}
"""By torch, the vLLM to install; as src/rollout/engines/vllm/versions.py."""
PEAK_TFLOPS = {"H100": 989, "H200": 989, "A100": 312, "L40S": 362, "L4": 121, "4090": 165, "A10G": 70}
"""Dense bfloat16, by a part of the device's name; the first that fits."""
TEAMS = (("0.6b", 0), ("0.6b", 1), ("1.7b", 1))
"""Shape, and vLLM's sleep level while policies learn."""


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

    @property
    def layer_weights(self) -> int:
        """Weights of all layers' matrices."""
        attention = 2 * self.hidden * self.heads * self.head_dim + 2 * self.hidden * self.kv_heads * self.head_dim
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    def forward(self, tokens: float, scored: float, pairs: float) -> float:
        """Operations of a pass over ``tokens``, of which ``scored`` have logits; ``pairs`` of a query and a key."""
        head = self.hidden * self.vocabulary
        attention = 4 * self.layers * self.heads * self.head_dim * pairs
        return 2 * self.layer_weights * tokens + 2 * head * scored + attention


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


def stages(out: Path, python: str, torch: str) -> list[Stage]:
    """All of them, in order; ``python`` is the machine's, ``torch`` its version."""
    own = str(VENV / "bin" / "python")
    pip = (own, "-m", "pip", "install", "--disable-pip-version-check", "-q", f"torch=={torch}")
    packages = (f"vllm=={vllm_for(torch)}", "-e", str(ROOT), "pytest>=9,<10", "pytest-asyncio>=1.3,<2")
    gpu_tests = str(ROOT / "tests" / "rollout" / "engines" / "vllm" / "test_vllm_gpu.py")
    return [
        Stage("setup", (python, "-m", "venv", "--system-site-packages", str(VENV)), 60),
        Stage("setup", (*pip, *packages), 540),
        Stage("test", (own, "-m", "pytest", "-m", "gpu", "-rs", "-s", gpu_tests), 900),
        *(
            Stage("team", (own, str(Path(__file__).with_name("gpu_team.py")), *_of(out, shape, sleep)), 270)
            for shape, sleep in TEAMS
        ),
    ]


def _of(out: Path, shape: str, sleep: int) -> tuple[str, ...]:
    return ("--shape", shape, "--sleep", str(sleep), "--out", str(out / f"team-{shape}-sleep{sleep}"))


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


def peak_tflops(device: str) -> float | None:
    """Of the ``device``, by its name; None where it is unknown."""
    return next((float(peak) for name, peak in PEAK_TFLOPS.items() if name in device), None)


def mfu(row: Mapping[str, Any], peak: float | None) -> tuple[float, float] | tuple[None, None]:
    """Of the rollout and of the update of one iteration, as shares of ``peak`` TFLOP/s."""
    if peak is None:
        return None, None
    shape = SHAPES[row["shape"]]
    prompt, made, nodes = row["prompt_tokens"], row["tokens"], row["completions"] / row["k"]
    length, answer = prompt / nodes, made / row["completions"]
    pairs = nodes * length**2 / 2 + made * (length + answer / 2)
    forward = shape.forward(prompt + made, made, pairs)
    update = 2 * forward + 6 * row["adapter"] * (prompt + made)
    return forward / row["rollout_s"] / (peak * 1e12), update / row["update_s"] / (peak * 1e12)


def table(
    rows: Sequence[Mapping[str, Any]], failed: Mapping[str, str], peak: float | None = None, checks: Sequence[str] = ()
) -> str:
    """The measured ``rows`` as Markdown; ``failed`` says, by stage, why; ``checks`` are the lines of `test`."""
    lines = ["# A team of two LoRA policies on one GPU", ""]
    lines += [f"{row['device']}, torch {row['torch']}, {row['engine']}" for row in rows[:1]]
    names = ["model", "sleep", "rollout tokens/s", "MFU", "update tokens/s", "MFU", "weights s", "iteration s"]
    names += ["peak GiB"]
    lines += ["", f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for row in rows:
        rollout, update = mfu(row, peak or peak_tflops(row["device"]))
        shares = [f"{100 * share:.1f} %" if share is not None else "unknown" for share in (rollout, update)]
        learnt = (row["prompt_tokens"] + row["tokens"]) / row["update_s"]
        whole = row["rollout_s"] + row["update_s"] + row["load_s"]
        cells = [row["shape"], row["sleep"], f"{row['tokens'] / row['rollout_s']:,.0f}", shares[0], f"{learnt:,.0f}"]
        cells += [shares[1], f"{row['load_s']:.3f}", f"{whole:.2f}", f"{row['peak_gib']:.2f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    if checks:
        lines += ["", "## Checks", "", "| check | what | result |", "| --- | --- | --- |", *checks]
    lines += ["", *(f"- **{name}** failed: {why}" for name, why in failed.items())]
    return "\n".join(lines).rstrip() + "\n"


def rows_in(out: Path) -> list[dict[str, Any]]:
    """What `team` has measured, in the order of the teams' names."""
    return [json.loads(file.read_text()) for file in sorted(out.glob("team-*/row.json"))]


def checks_in(out: Path) -> list[str]:
    """The lines that the checks of bench/vllm_gpu.py have printed, sleep levels among them."""
    lines = [line for log in sorted(out.glob("*-test.log")) for line in log.read_text().splitlines()]
    return [line for line in lines if line.startswith(("| agreement ", "| sleep ", "| run ", "| update "))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=("setup", "test", "team", "table"), action="append")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu_day")
    parser.add_argument("--torch", help="the machine's version; default: that of `import torch`")
    parser.add_argument("--peak-tflops", type=float, help="of the GPU in bfloat16, where its name is not known here")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and their limits, and end")
    arguments = parser.parse_args()
    torch = arguments.torch or machine_torch()
    every = stages(arguments.out, sys.executable, torch)
    chosen = [stage for stage in every if arguments.stage is None or stage.name in arguments.stage]
    if arguments.dry_run:
        for stage in chosen:
            print(f"{stage.name:6} at most {stage.limit_s:4} s: {shlex.join(stage.command)}")
        print(f"in all at most {sum(stage.limit_s for stage in chosen) / 60:.0f} minutes")
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    started = time.monotonic()
    for number, stage in enumerate(chosen):
        why = run(stage, arguments.out / f"{number}-{stage.name}.log")
        if why is not None:
            failed[f"{stage.name} ({number})"] = why
            if stage.name == "setup":
                break
    text = table(rows_in(arguments.out), failed, arguments.peak_tflops, checks_in(arguments.out))
    (arguments.out / "table.md").write_text(text)
    print(f"{text}\n{(time.monotonic() - started) / 60:.1f} minutes; {arguments.out / 'table.md'}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def machine_torch() -> str:
    """Raises ``SystemExit`` where this Python has no torch."""
    ask = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{sys.executable} has no torch; give --torch 2.11.0 to install it")
    return done.stdout.strip().partition("+")[0]


if __name__ == "__main__":
    main()

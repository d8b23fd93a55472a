"""A team of two LoRA policies on a Qwen3 of random weights, trained for a few iterations.

`bench/gpu_day.py` starts it in its environment.  ``--shape tiny --engine torch`` tries the program itself on a CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import torch
from gpu_day import SHAPES, Shape
from lines import Setting, names
from transformers import Qwen3Config, Qwen3ForCausalLM

from troupe.loop import TrainLoop
from troupe.models.bases.tiny import build_tokenizer

K = 8


def save_base(shape: Shape, folder: Path, device: str) -> None:
    """A model of random weights, in bfloat16, and a tokenizer with a word for every id."""
    tokenizer = build_tokenizer([*names(2), *(f"w{i}" for i in range(words_in(shape)))])
    tokenizer.model_max_length = 2048
    assert len(tokenizer) == shape.vocabulary, f"{len(tokenizer)} words"
    config = Qwen3Config(
        **shape.qwen3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def words_in(shape: Shape) -> int:
    """The vocabulary without four special tokens and two agents."""
    return shape.vocabulary - 6


def setting(arguments: argparse.Namespace, base: Path) -> Setting:
    """One iteration's work."""
    small = arguments.shape == "tiny"
    words = ["strategy.precision=bf16-true", "strategy.gradient_checkpointing=true", "engine.dtype=bfloat16"]
    words += [f"engine={arguments.engine}", "scale.max_tokens=16384"]
    if arguments.engine == "vllm":
        gib = 0.1 if small else 8
        words += [f"engine.sleep={arguments.sleep}", f"engine.kv_cache_gib={gib}"]
    sizes = dict(prompt=32, completion=8, tasks=2) if small else dict(prompt=512, completion=256, tasks=32)
    vocabulary = words_in(SHAPES[arguments.shape])
    return Setting(**sizes, k=K, vocabulary=vocabulary, regime="lora", model=base, words=tuple(words))


async def train(loop: TrainLoop, iterations: int) -> list[dict[str, Any]]:
    """The metrics of so many iterations."""
    rows = []
    try:
        for _ in range(iterations):
            row, loop.progress.row = await loop.run_iteration(), {}
            rows.append(row)
            print({key: round(value, 3) for key, value in row.items() if key.startswith("time/")}, flush=True)
    finally:
        await loop.team.close()
        loop.directory.release()
    return rows


class Peak:
    """The most memory of the first GPU that all processes together use, GiB; 0 without one."""

    def __init__(self) -> None:
        self.gib, self._over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while torch.cuda.is_available() and not self._over.wait(0.05):
            free, total = torch.cuda.mem_get_info(0)
            self.gib = max(self.gib, (total - free) / 2**30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), required=True)
    parser.add_argument("--sleep", type=int, choices=(0, 1, 2), default=1)
    parser.add_argument("--out", type=Path, required=True, help="a folder that does not hold a run")
    parser.add_argument("--engine", choices=("vllm", "torch"), default="vllm")
    parser.add_argument("--iterations", type=int, default=4)
    arguments = parser.parse_args()
    if arguments.iterations < 2:
        parser.error("--iterations must be at least 2: the first is not measured")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and arguments.shape != "tiny":
        parser.error("no GPU that torch can use; --shape tiny tries the program itself")
    base = arguments.out / "base"
    save_base(SHAPES[arguments.shape], base, device)
    with Peak() as peak:
        rows = asyncio.run(train(setting(arguments, base).loop(), arguments.iterations))
    learnt = [row[f"train/{agent}/grad_norm"] for row in rows for agent in names(2)]
    assert all(learnt), f"an update learnt from nothing: gradient norms {learnt}"  # its time would say nothing
    (arguments.out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (arguments.out / "about.json").write_text(json.dumps({"peak GiB": f"{peak.gib:.2f}"}))


if __name__ == "__main__":
    main()

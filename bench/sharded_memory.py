"""The memory that `dry_run=true` plans for a process that learns, against what it was seen to take on a CPU: of one
process, and of two that shard weights, gradients and optimizer states (`strategy=fsdp2`).

Weights, gradients and optimizer states are the bytes of a process's tensors.  The peak of an update, and what weights
gathered for an engine add, are resident memory above that of the libraries: first with malloc's blocks of 64 KiB and
more given back as soon as they are free (`MALLOC_MMAP_THRESHOLD_`), which is what torch asks for, then as malloc is,
which keeps freed blocks for the next ones.  Of two processes the larger figure counts.  A Qwen3 of random weights in
float32, AdamW, micro-batches of 512 tokens; no engine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from lines import Setting, new_model
from torch.distributed.tensor import DTensor
from transformers import Qwen3Config, Qwen3ForCausalLM
from update import groups_of, peak_from_now, policy_of, resident

from troupe.models.pools.fabrics import fabric_of, launch
from troupe.models.pools.strategies import Fsdp2, StrategySettings
from troupe.setup.checks import checked
from troupe.setup.dry_run import plan

MODEL = Qwen3Config(
    vocab_size=8192,
    hidden_size=512,
    intermediate_size=1536,
    num_hidden_layers=8,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    tie_word_embeddings=True,
    max_position_embeddings=1024,
    bos_token_id=None,
    eos_token_id=None,
)
TOKENS = 512
"""Of a micro-batch."""
GROUPS = (256, 128, 2, 8)
"""Tokens of a prompt and of a completion, K, prompts."""
CASES = {
    "one process": (1, False),
    "one process, recomputed": (1, True),
    "fsdp2": (2, False),
    "fsdp2, recomputed": (2, True),
}
"""How many processes, and whether activations are recomputed."""
MIB = 2**20


def planned(processes: int, recomputed: bool) -> dict[str, float]:
    """Bytes per process, as `dry_run=true` has them, without the engine."""
    folder = Path(mkdtemp(prefix="troupe-bench-"))
    MODEL.save_pretrained(folder)
    words = [f"scale.max_tokens={TOKENS}", "strategy.accelerator=cpu", f"strategy.devices={processes}"]
    words += [f"strategy={'fsdp2' if processes > 1 else 'single_device'}", "strategy.precision=32-true"]
    words += [f"strategy.gradient_checkpointing={str(recomputed).lower()}"]
    setting = Setting(agents=1, model=folder, words=tuple(words))
    new_model(setting.vocabulary, setting.agents, MODEL.max_position_embeddings)[0].save_pretrained(folder)
    parts, _ = checked(setting.composed())
    (pool,) = plan(parts).pools
    memory = pool.memory
    peak = memory.weights + memory.gradients + memory.optimizer + memory.activations
    held = {name: getattr(memory, name) for name in ("weights", "gradients", "optimizer", "gathered")}
    return held | {"peak of an update": peak}


async def update_twice(processes: int, recomputed: bool) -> dict[str, float]:
    """This process's bytes, and the seconds of CPU of its second update."""
    settings = StrategySettings(
        accelerator="cpu",
        devices=processes,
        precision="32-true",
        strategy=Fsdp2() if processes > 1 else "auto",
        gradient_checkpointing=recomputed,
    )
    fabric = fabric_of(settings)
    ranks = launch(fabric)
    torch.nn.Linear(64, 64)(torch.ones(1, 64)).sum().backward()  # the libraries' own, before there is a model
    before = resident("VmRSS")
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(MODEL)
    if recomputed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy, found = policy_of(model, fabric, ranks, max_tokens=TOKENS), dict[str, float]()

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"]]
        found["gradients"] = held_bytes(gradients)

    policy.learner.optimizer.register_step_pre_hook(note)
    for _ in range(2):
        peak_from_now()
        started = time.process_time()
        await policy.pool.update({"p": groups_of(*GROUPS, MODEL.vocab_size)})
        found["seconds"] = time.process_time() - started
        found["peak of an update"] = resident("VmHWM") - before
    states = [value for state in policy.learner.optimizer.state.values() for value in state.values()]
    found["optimizer"] = held_bytes([each for each in states if torch.is_tensor(each) and each.dim()])
    found["weights"] = held_bytes(list(model.parameters()))
    peak_from_now()
    between = resident("VmRSS")
    await policy.weights()
    found["gathered"] = resident("VmHWM") - between
    return found


def held_bytes(tensors: list[Any]) -> int:
    """What this process holds of ``tensors``."""
    own = [each.to_local() if isinstance(each, DTensor) else each for each in tensors]
    return sum(each.numel() * each.element_size() for each in own)


def measured(case: str, given_back: bool) -> dict[str, float]:
    """The largest figures of the processes of ``case``."""
    command = [sys.executable, __file__, "--process", case]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"MALLOC_MMAP_THRESHOLD_": "65536"} if given_back else {})
    text = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert len(found) == CASES[case][0], text
    return {key: max(each[key] for each in found) for key in found[0]}


def table(cases: list[str]) -> str:
    """Planned and measured MiB per process."""
    lines = ["| | | planned | asked for | resident |", "| --- | --- | --- | --- | --- |"]
    for case in cases:
        expected, asked, kept = planned(*CASES[case]), measured(case, True), measured(case, False)
        for what, number in expected.items():
            row = [f"{each[what] / MIB:.0f}" for each in (asked, kept)]
            lines.append(f"| {case} | {what} | {number / MIB:.0f} | {row[0]} | {row[1]} |")
        lines.append(f"| {case} | CPU seconds of an update | | {asked['seconds']:.1f} | {kept['seconds']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append", help="default: all")
    parser.add_argument("--process", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        torch.set_num_threads(1)
        print("\n" + json.dumps(asyncio.run(update_twice(*CASES[arguments.process]))), flush=True)
    else:
        print(table(arguments.case or list(CASES)))


if __name__ == "__main__":
    main()

"""One update against TRL's: the same model, prompts, completions and K, in one process, pairs interleaved.

TRL's is ``GRPOTrainer._compute_loss`` with its defaults (entropies, fused head), its backward pass, clipping and AdamW,
in float32 and without activation checkpointing, which would cost it time; its tensors are ready.  Ours is the whole
``Policy.update`` from samples: packing, statistics and all.  All completions have the stated length, so that TRL pads
nothing; every advantage differs from 0, so that we leave nothing out.  The weights are random: the speed does not
depend on their values.

``coder`` has adapters of rank 16 on a frozen base in bfloat16, ours by ``attach``, TRL's by its ``peft_config``.

Memory is the peak above the loaded model, gradients and the optimizer's state included, each in a fresh process.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import lightning as L
import torch
from engine import coder
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from troupe.algorithms.objectives import ClippedObjective
from troupe.experience import Sample
from troupe.models.learning.adapters import AdapterModule, attach
from troupe.models.learning.policy import PolicyModule
from troupe.models.learning.ranks import Ranks
from troupe.models.learning.settings import LoraSettings, UpdateSettings
from troupe.models.learning.train_config import PolicyTrainConfig
from troupe.models.pools.pool import Policy, Pool

SETTINGS = {  # model, prompt tokens, completion tokens, K, prompts
    "long": ("qwen3", 1024, 128, 8, 1),
    "short": ("qwen3", 128, 32, 4, 4),
    "smollm2": ("smollm2", 256, 64, 4, 2),
    "coder": ("coder", 256, 128, 4, 2),
}
RANK = 16  # of adapters
AdamW = partial(torch.optim.AdamW, lr=1e-6, weight_decay=0.0, fused=True)  # as TRL's default, adamw_torch_fused


def build(name: str) -> PreTrainedModel:
    """A model with random weights."""
    torch.manual_seed(0)
    common: dict[str, Any] = {"max_position_embeddings": 2048, "bos_token_id": None, "eos_token_id": None}
    if name == "qwen3":
        qwen3 = Qwen3Config(
            vocab_size=128,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            tie_word_embeddings=True,
            **common,
        )
        return Qwen3ForCausalLM(qwen3)
    if name == "coder":
        return coder(common)
    llama = LlamaConfig(  # SmolLM2-135M's
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        **common,
    )
    return LlamaForCausalLM(llama)


def groups_of(prompt: int, new: int, k: int, prompts: int, vocabulary: int) -> list[list[Sample]]:
    """A group of ``k`` completions of ``new`` tokens for each of ``prompts`` prompts."""
    rng = Random(0)

    def drawn(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(vocabulary) for _ in range(count))

    weight = 1 / (prompts * k)
    return [
        [Sample("p", text, drawn(new), (-4.0,) * new, 1.0 - 2 * (i % 2), weight) for i in range(k)]
        for text in (drawn(prompt) for _ in range(prompts))
    ]


def policy_of(model: PreTrainedModel, fabric: L.Fabric, ranks: Ranks | None = None, **update: Any) -> Policy:
    """A policy named p, alone in its pool, that learns as TRL's does; ``update`` are keys of its update."""
    config = PolicyTrainConfig(
        objective=ClippedObjective(),
        optimizer=AdamW,
        scheduler=partial(torch.optim.lr_scheduler.ConstantLR, factor=1.0, total_iters=0),
        temperature=1.0,
        update=UpdateSettings(**update),
    )
    if model.dtype != torch.bfloat16:
        return Pool(PolicyModule(model, {"p": config}), fabric, ranks=ranks).policies["p"]
    adapted = attach(model, "coder", {"p": LoraSettings(r=RANK, alpha=2 * RANK)}, {"p": 0}).bfloat16()  # bf16-true
    return Pool(AdapterModule(adapted, {"p": config}), fabric, ranks=ranks).policies["p"]


def ours(model: PreTrainedModel, groups: list[list[Sample]]) -> Callable[[], object]:
    """An update of Troupe's."""
    tokens = {"max_tokens": 1024} if model.dtype == torch.bfloat16 else {}  # as scale=coder
    policy = policy_of(model, L.Fabric(accelerator="cpu", devices=1), **tokens)
    return lambda: asyncio.run(policy.pool.update({"p": groups}))


def trls(model: PreTrainedModel, groups: list[list[Sample]]) -> Callable[[], object]:
    """The same step of TRL's."""
    from datasets import Dataset
    from peft import LoraConfig
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    samples = [sample for group in groups for sample in group]
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(model.config.vocab_size)}, unk_token="w0"))
    lora = None
    if model.dtype == torch.bfloat16:
        lora = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM")
    arguments = GRPOConfig(
        tempfile.mkdtemp(),
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        per_device_train_batch_size=len(samples),
        num_generations=len(groups[0]),
        max_completion_length=len(samples[0].token_ids),
        learning_rate=1e-6,
        loss_type="grpo",
        report_to=[],
    )
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["w1"] * len(samples)}),
        peft_config=lora,
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w0"),
    )
    optimizer, accelerator = trainer.create_optimizer(), trainer.accelerator
    prompts, completions = (torch.tensor([getattr(s, name) for s in samples]) for name in ("prompt_ids", "token_ids"))
    inputs = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "advantages": torch.tensor([sample.advantage for sample in samples]),
        "num_items_in_batch": torch.tensor(completions.numel()),
    }
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()

    def step() -> None:
        loss = trainer._compute_loss(trainer.model, dict(inputs))
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(trainer.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


SIDES: dict[str, Callable[[PreTrainedModel, list[list[Sample]]], Callable[[], object]]] = {"ours": ours, "trl": trls}


def time_pairs(setting: str, pairs: int, clock: Callable[[], float]) -> list[float]:
    """TRL's seconds over ours, of each pair; the order alternates."""
    model = build(SETTINGS[setting][0])
    groups = groups_of(*SETTINGS[setting][1:], model.config.vocab_size)
    steps = {side: make(copy.deepcopy(model), groups) for side, make in SIDES.items()}
    ratios = []
    for pair in range(pairs + 1):
        seconds = {}
        for side in sorted(steps, reverse=pair % 2 == 0):
            started = clock()
            steps[side]()
            seconds[side] = clock() - started
        print(f"  {setting}: ours {seconds['ours']:.3f} s, TRL {seconds['trl']:.3f} s", flush=True)
        if pair:  # the first warms up
            ratios.append(seconds["trl"] / seconds["ours"])
    return ratios


def memory(setting: str, side: str) -> int:
    """Bytes of this process's peak above what it held with the model loaded, after two steps."""
    model = build(SETTINGS[setting][0])
    step = SIDES[side](model, groups_of(*SETTINGS[setting][1:], model.config.vocab_size))
    before = resident("VmRSS")
    peak_from_now()
    for _ in range(2):
        step()
    return resident("VmHWM") - before


def resident(key: str) -> int:
    """Bytes of this process's memory, now (``VmRSS``) or at its peak (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


def peak_from_now() -> None:
    """Forget this process's peak so far."""
    Path("/proc/self/clear_refs").write_text("5")


def memory_ratio(setting: str, threads: int) -> float:
    """Our memory over TRL's, each measured in a fresh process."""
    bytes_of = {}
    for side in SIDES:
        command = [sys.executable, __file__, "--memory", side, "--setting", setting, "--threads", str(threads)]
        bytes_of[side] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
    print(f"  {setting}: ours {bytes_of['ours'] / 1e6:.0f} MB, TRL {bytes_of['trl'] / 1e6:.0f} MB", flush=True)
    return bytes_of["ours"] / bytes_of["trl"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--setting", choices=sorted(SETTINGS), action="append")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: on a machine shared with others")
    parser.add_argument("--memory", choices=sorted(SIDES), help="print one side's memory in bytes, and nothing else")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    settings = arguments.setting or list(SETTINGS)
    if arguments.memory:
        print(memory(settings[0], arguments.memory))
        return
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[arguments.clock]
    print(f"torch {torch.__version__}, {arguments.threads} threads, on CPU, {arguments.clock} time")
    for setting in settings:
        ratio = statistics.median(time_pairs(setting, arguments.pairs, clock))
        print(f"  {setting}: {ratio:.2f} times as fast, {memory_ratio(setting, arguments.threads):.2f} of TRL's memory")


if __name__ == "__main__":
    main()

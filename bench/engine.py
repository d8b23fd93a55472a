"""The torch engine against ``transformers``' ``generate``: the same model, prompts and lengths, one run.

``generate`` gets what suits it best: a batch of prompts of equal length (nothing is padded), ``num_return_sequences``,
sampling without truncation, no log-probabilities asked for, its dynamic and its static cache, and smaller batches too.
End-of-sequence is off, so that every completion has the stated length.  Repetitions are interleaved; the figures are
medians.  The first repetition warms up, and drops what is slower than three quarters of the best `generate`.  The model
has the laptop scale's size and random weights, on whose values the speed does not depend; or it is SmolLM2-135M, or has
the size of Qwen2.5-Coder-0.5B and is in bfloat16.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

from troupe.experience import Request, Sampling
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine

VOCABULARY = 150
SETTINGS = {  # prompts, prompt tokens, completion tokens, K
    "short": (16, 128, 32, 4),
    "long": (16, 1024, 128, 8),
    "smollm2": (4, 256, 32, 4),
    "coder": (8, 128, 32, 4),
}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
BAR = {"short": 3.0, "long": 6.0, "smollm2": 1.5, "coder": 1.5}


def build(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model of a setting, which never ends a sequence by itself."""
    if name == "smollm2":
        smollm2, words = load_model("smollm2_q4").eval(), copy.deepcopy(load_tokenizer("smollm2_q4"))
        smollm2.generation_config.eos_token_id = words.eos_token = None
        smollm2.generation_config.pad_token_id = 0
        return smollm2, words
    torch.manual_seed(0)
    ids = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(ids, unk_token="w0")))
    if name == "coder":
        return coder({"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}).eval(), tokenizer
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return Qwen3ForCausalLM(config).eval(), tokenizer


def coder(common: Mapping[str, Any]) -> PreTrainedModel:
    """A model of Qwen2.5-Coder-0.5B's size with random weights in bfloat16."""
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        **common,
    )
    return Qwen2ForCausalLM(config).bfloat16()


def with_generate(
    model: PreTrainedModel, prompts: torch.Tensor, new: int, k: int, cache: str, batch: int
) -> Callable[[], int]:
    """A run of ``generate``, ``batch`` prompts at a time; returns the tokens made."""

    def run() -> int:
        made = 0
        for part in prompts.split(batch):
            output = model.generate(
                part,
                attention_mask=torch.ones_like(part),
                do_sample=True,
                top_k=0,
                top_p=1.0,
                temperature=1.0,
                max_new_tokens=new,
                num_return_sequences=k,
                cache_implementation=cache,
                disable_compile=True,
            )
            made += output.shape[0] * (output.shape[1] - part.shape[1])
        return made

    return run


def with_engine(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: torch.Tensor, new: int, k: int
) -> Callable[[], int]:
    """A run of the engine on the same prompts."""
    engine = TorchEngine({"policy": model}, tokenizer, max_batch_rows=len(prompts) * k)

    async def generate() -> int:
        requests = [
            Request("policy", tuple(prompt), k, Sampling(max_tokens=new), seed=index, key=(index,))
            for index, prompt in enumerate(prompts.tolist())
        ]
        nodes = await asyncio.gather(*(engine.generate(request) for request in requests))
        return sum(len(completion.token_ids) for node in nodes for completion in node)

    return lambda: asyncio.run(generate())


def measure(name: str, repetitions: int, clock: Callable[[], float]) -> list[float]:
    """Print the table of one setting; the engine's speed over that of ``generate`` at its best, by repetition."""
    batch, prompt, new, k = SETTINGS[name]
    model, tokenizer = build(name)
    prompts = torch.randint(1, VOCABULARY, (batch, prompt), generator=torch.Generator().manual_seed(1))
    runs = {"engine": with_engine(copy.deepcopy(model), tokenizer, prompts, new, k)}
    for size in sorted({batch, max(1, batch // 4)}, reverse=True):
        for cache in ("dynamic", "static"):
            runs[f"generate, {cache} cache, batches of {size}"] = with_generate(model, prompts, new, k, cache, size)

    def once() -> dict[str, float]:
        speed = {}
        for label, run in runs.items():
            started = clock()
            made = run()
            speed[label] = made / (clock() - started)
            assert made == batch * k * new, f"{label}: {made} tokens, expected {batch * k * new}"
        return speed

    first = once()
    least = 0.75 * max(speed for label, speed in first.items() if label != "engine")
    runs = {label: run for label, run in runs.items() if label == "engine" or first[label] >= least}
    every = [once() for _ in range(repetitions)]
    speeds = {label: [speed[label] for speed in every] for label in runs}
    print(f"\n{name}: {batch} prompts of {prompt} tokens, K = {k}, {new} new tokens; {repetitions} repetitions")
    medians = {label: statistics.median(values) for label, values in speeds.items()}
    for label, values in speeds.items():
        print(f"  {label:42s} {medians[label]:9.0f} tokens/s   ({min(values):.0f} to {max(values):.0f})")
    best = max((label for label in medians if label != "engine"), key=lambda label: medians[label])
    ratios = [ours / theirs for ours, theirs in zip(speeds["engine"], speeds[best], strict=True)]
    print(f"  engine / best generate: {statistics.median(ratios):.2f} (the bar is {BAR[name]:g})", flush=True)
    return ratios


def compiled_vllm(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dtype: str,
    prompts: Sequence[Sequence[int]],
    k: int,
    **settings: Any,
) -> tuple[Any, Callable[[int], int]]:
    """An ``LLM`` of vLLM in this process, with these ``settings``, and what has it make ``k`` completions of so many
    tokens of each prompt; returns the tokens made.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # so that the CPU's time is this process's
    from vllm import LLM, SamplingParams

    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        llm = LLM(
            folder,
            dtype=dtype,
            max_model_len=2048,
            max_num_seqs=k * len(prompts),
            generation_config="vllm",
            disable_log_stats=True,
            **settings,
        )

    def generate(new: int) -> int:
        asked = SamplingParams(n=k, max_tokens=new, temperature=1.0, ignore_eos=True, detokenize=False)
        outputs = llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], asked, use_tqdm=False)
        return sum(len(answer.token_ids) for output in outputs for answer in output.outputs)

    return llm, generate


def against_vllm(name: str, repetitions: int, clock: Callable[[], float]) -> list[float]:
    """The engine's speed over that of ``LLM.generate``, by repetition; both in this process, float32.

    vLLM has what suits it: a compiled model, all prompts at once, prefix caching off (no two begin alike), no
    log-probabilities asked for.
    """
    batch, prompt, new, k = SETTINGS[name]
    model, tokenizer = build(name)
    prompts = torch.randint(1, VOCABULARY, (batch, prompt), generator=torch.Generator().manual_seed(1))
    settings = {"kv_cache_memory_bytes": 1 << 29, "enable_prefix_caching": False}
    _, generate = compiled_vllm(model, tokenizer, "float32", prompts.tolist(), k, **settings)
    runs = {"engine": with_engine(model, tokenizer, prompts, new, k), "vLLM": lambda: generate(new)}
    ratios = []
    for repetition in range(repetitions + 1):
        speed = {}
        for label, run in runs.items():
            started = clock()
            made = run()
            speed[label] = made / (clock() - started)
            assert made == batch * k * new, f"{label}: {made} tokens, expected {batch * k * new}"
        print(f"  {name}: engine {speed['engine']:.0f} tokens/s, vLLM {speed['vLLM']:.0f}", flush=True)
        if repetition:  # the first warms up
            ratios.append(speed["engine"] / speed["vLLM"])
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--setting", choices=sorted(SETTINGS), action="append")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall", help="cpu: on a machine shared with others")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    print(f"torch {torch.__version__}, {arguments.threads} threads, on CPU, {arguments.clock} time")
    for name in arguments.setting or SETTINGS:
        measure(name, arguments.repetitions, CLOCKS[arguments.clock])


if __name__ == "__main__":
    main()

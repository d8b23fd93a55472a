"""SmolLM2-135M on a CPU: prefill and decoding apart, against their floors; bfloat16 against float32.

`python bench/smollm2.py [--base smollm2_q4]` uses one thread and measures CPU time, so that other processes on the
machine matter little.  All variants run in turn within each repetition; figures are medians, and ratios are of pairs
of one repetition.

With `--vllm` (in `.venv-vllm`) vLLM's `LLM.generate` does the same, compiled, in this process, with a prefix cache that
is empty before every request.

Prefill is a request for one token; decoding is a request for many tokens less the prefill of the same repetition.
The floor of a part is the larger of two times: its operations at the rate of a large matrix product, and the bytes of
the weights, read once per pass, at the rate of a sum over 512 MiB; both rates are measured in the same repetition, in
float32.  Operations: 2 per weight and token in the layers, 2 per weight of the head for each row of logits, and 4 * D
per pair of query and key in each query head.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from engine import compiled_vllm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from troupe.envs.math import WordProblems
from troupe.experience import Completion, Request, Sampling
from troupe.kernels import products
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.sandbox import LocalSandbox


@dataclass(frozen=True)
class Cost:
    """Operations and bytes of one part of the work."""

    operations: float
    bytes: float

    def floor_s(self, rates: dict[str, float]) -> float:
        """Seconds, by whichever of the two takes longer."""
        return max(self.operations / rates["operations/s"], self.bytes / rates["bytes/s"])


def prompts_of(tokenizer: PreTrainedTokenizerBase, count: int) -> list[tuple[int, ...]]:
    """The tool agent's prompts of so many word problems."""
    world = WordProblems(sandbox=LocalSandbox(workers=1))
    prompts = []
    for task in world.tasks("train", count, 0):
        world.reset(task)
        ids = tokenizer.apply_chat_template(world.observe("tool"), add_generation_prompt=True, return_dict=False)
        prompts.append(tuple(ids))
    return prompts


def generate(engine: TorchEngine, prompts: Sequence[tuple[int, ...]], k: int, new: int) -> list[list[Completion]]:
    async def ask() -> list[list[Completion]]:
        requests = [Request("p", ids, k, Sampling(max_tokens=new), seed=i, key=(i,)) for i, ids in enumerate(prompts)]
        return list(await asyncio.gather(*map(engine.generate, requests)))

    return asyncio.run(ask())


def vllm_engine(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: str, prompts: Sequence[tuple[int, ...]], k: int
) -> Callable[[int], object]:
    """What makes ``k`` completions of so many tokens of each prompt by vLLM."""
    settings = {"kv_cache_memory_bytes": 1 << 30, "block_size": 32}
    llm, generate = compiled_vllm(model, tokenizer, dtype, prompts, k, **settings)

    def run(new: int) -> object:
        if not llm.reset_prefix_cache():
            raise RuntimeError("vLLM kept its prefix cache")
        made = generate(new)
        assert made == k * len(prompts) * new
        return made

    return run


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def machine_rates(model: PreTrainedModel) -> dict[str, float]:
    """What one thread can do at best, in float32: a large product with a matrix of the model, and a sum."""
    x, weight = torch.randn(2048, model.config.hidden_size), torch.randn(4096, model.config.hidden_size)
    data = torch.ones(1 << 27)
    product = seconds(lambda: [products.linear(x, weight) for _ in range(4)])
    return {"operations/s": 4 * 2 * x.numel() * len(weight) / product, "bytes/s": 4 * data.numel() / seconds(data.sum)}


def costs(model: PreTrainedModel, prompts: Sequence[Sequence[int]], k: int, new: int) -> dict[str, Cost]:
    """Of prefill, and of decoding all further tokens."""
    config, head = model.config, model.get_output_embeddings().weight.numel()
    layers = sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
    pair = 4 * config.head_dim * config.num_attention_heads * config.num_hidden_layers
    tokens = sum(map(len, prompts))
    prefill = 2 * layers * tokens + 2 * head * len(prompts) + pair * sum(len(ids) ** 2 / 2 for ids in prompts)
    steps, rows = new - 1, k * len(prompts)
    seen = sum(k * (len(ids) + step) for ids in prompts for step in range(1, new))
    decoding = 2 * (layers + head) * rows * steps + pair * seen
    size = 4 * (layers + head)
    return {"prefill": Cost(prefill, size), "decoding": Cost(decoding, size * steps)}


def update(model: PreTrainedModel, ids: torch.Tensor, *, half: bool) -> None:
    """Forward and backward pass over ``ids`` (B, T), with gradients of all weights, by transformers' layers with the
    products of the learner; ``half``: as `bf16-mixed` does.
    """
    with products.FastLinear(), torch.autocast("cpu", torch.bfloat16, enabled=half):
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    model.zero_grad(set_to_none=True)


def differences(reference: PreTrainedModel, prompts: Sequence[tuple[int, ...]], nodes: list[list[Completion]]) -> str:
    """How far behaviour log-probs are from those of ``reference`` by a plain forward pass."""
    found = []
    with torch.inference_mode():
        for ids, node in zip(prompts, nodes, strict=True):
            for completion in node:
                tokens = torch.tensor([[*ids, *completion.token_ids]])
                scores = reference(input_ids=tokens).logits[0, len(ids) - 1 : -1].log_softmax(-1)
                own = scores.gather(1, tokens[0, len(ids) :, None])[:, 0]
                found.append((torch.tensor(completion.logprobs) - own).abs())
    every = torch.cat(found)
    return f"mean {every.mean():.2g}, 99 % {every.quantile(0.99):.2g}, max {every.max():.2g} nats ({len(every)} tokens)"


def median_ratio(over: list[float], under: list[float]) -> str:
    pairs = sorted(a / b for a, b in zip(over, under, strict=True))
    return f"{statistics.median(pairs):.2f} ({pairs[0]:.2f} to {pairs[-1]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="smollm2_q4")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--new", type=int, default=17, help="tokens per completion")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--vllm", action="store_true", help="measure vLLM, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    with open("/proc/cpuinfo") as file:
        flags = file.read()
    print(f"{options.base}, torch {torch.__version__}, one thread, CPU time; this CPU has AVX512-BF16: ", end="")
    print(f"{'yes' if 'avx512_bf16' in flags else 'no'}, AMX-BF16: {'yes' if 'amx_bf16' in flags else 'no'}")

    model, tokenizer = load_model(options.base).eval(), load_tokenizer(options.base)
    prompts = prompts_of(tokenizer, options.prompts)
    common = next(i for i, column in enumerate(zip(*prompts, strict=False)) if len(set(column)) > 1)
    total = sum(map(len, prompts))
    print(f"{len(prompts)} prompts of {total} tokens, the first {common} of each the same; K = {options.k}, ", end="")
    print(f"{options.new} new tokens\n", flush=True)
    model.generation_config.eos_token_id = None  # every completion has the stated length
    endless = copy.deepcopy(tokenizer)
    endless.eos_token = None
    engines = {
        "float32": TorchEngine({"p": copy.deepcopy(model)}, endless),
        "bfloat16": TorchEngine({"p": model}, endless, dtype="bfloat16"),
    }
    runs: dict[str, Callable[[int], object]] = {
        name: lambda new, engine=engine: generate(engine, prompts, options.k, new) for name, engine in engines.items()
    }
    if options.vllm:
        for dtype in ("float32", "bfloat16"):
            runs[f"{dtype}, vLLM"] = vllm_engine(model, tokenizer, dtype, prompts, options.k)
    learner = copy.deepcopy(model).train()
    batch = torch.tensor([ids[: min(map(len, prompts))] for ids in prompts[:4]])
    times: dict[tuple[str, str], list[float]] = {}
    rates: list[dict[str, float]] = []
    for repetition in range(options.repetitions + 1):
        row: dict[tuple[str, str], float] = {}
        rate = machine_rates(model)
        for name, run in runs.items():
            row[name, "prefill"] = seconds(lambda run=run: run(1))
            whole = seconds(lambda run=run: run(options.new))
            row[name, "decoding"] = whole - row[name, "prefill"]
        for name in engines:
            row[name, "update"] = seconds(lambda half=name == "bfloat16": update(learner, batch, half=half))
        print(f"repetition {repetition}: {', '.join(f'{n} {p} {v:.2f} s' for (n, p), v in row.items())}", flush=True)
        if repetition:  # the first warms up
            rates.append(rate)
            for key, value in row.items():
                times.setdefault(key, []).append(value)

    tokens = {
        "prefill": total,
        "decoding": options.k * len(prompts) * (options.new - 1),
        "update": batch.numel(),
    }
    floors = {
        part: [cost.floor_s(rate) for rate in rates]
        for part, cost in costs(model, prompts, options.k, options.new).items()
    }
    print("\n| part | dtype | tokens per CPU-second | time over the floor | time over the torch engine's float32 |")
    print("| --- | --- | --- | --- | --- |")
    for (name, part), values in sorted(times.items(), key=lambda item: item[0][::-1]):
        over = median_ratio(values, floors[part]) if part in floors else "–"
        against = median_ratio(values, times["float32", part]) if name != "float32" else ""
        print(f"| {part} | {name} | {tokens[part] / statistics.median(values):.0f} | {over} | {against} |")
    gflops, gbytes = (statistics.median(rate[key] for rate in rates) / 1e9 for key in ("operations/s", "bytes/s"))
    print(f"\nrates of the floor: {gflops:.0f} GFLOP/s, {gbytes:.1f} GB/s")
    print("behaviour log-probs against transformers' float32 by a plain forward pass:")
    for name, engine in engines.items():
        few = prompts[:4]
        print(f"  {name}: {differences(model, few, generate(engine, few, 2, options.new))}")


if __name__ == "__main__":
    main()

"""SmolLM2-135M on a CPU: prefill and decoding apart, against their floors; bfloat16 against float32.

`python bench/smollm2.py [--base coder_q4 --dtypes bfloat16]` uses one thread and measures CPU time, so that other
processes on the machine matter little.  All variants run in turn within each repetition; figures are medians, and
ratios are of pairs of one repetition.  `generate` is transformers', all prompts in one batch, padded on the left.

With `--vllm` (in `.venv-vllm`) vLLM's `LLM.generate` does the same, compiled, in this process, with a prefix cache that
is empty before every request.

Prefill is a request for one token; decoding is a request for many tokens less the prefill of the same repetition.
The floor of a part is the larger of two times: its operations at the rate of a large matrix product, and the bytes of
the weights, read once per pass, at the rate of a sum over 512 MiB; both rates are measured in the same repetition, the
former in the variant's dtype.  Operations: 2 per weight and token in the layers, 2 per weight of the head for each row
of logits, and 4 * D per pair of query and key in each query head.
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
from troupe.rollout.engines.torch.checks import DTYPES
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


def machine_rates(model: PreTrainedModel, dtype: str = "float32") -> dict[str, float]:
    """What one thread can do at best: a large product with a matrix of the model's size, and a sum."""
    width, kind = model.config.hidden_size, DTYPES[dtype]
    x, weight = torch.randn(2048, width, dtype=kind), torch.randn(4096, width, dtype=kind)
    data = torch.ones(1 << 27)
    product = seconds(lambda: [products.linear(x, weight) for _ in range(4)])
    return {"operations/s": 4 * 2 * x.numel() * len(weight) / product, "bytes/s": 4 * data.numel() / seconds(data.sum)}


def with_generate(model: PreTrainedModel, prompts: Sequence[Sequence[int]], k: int) -> Callable[[int], object]:
    """What makes ``k`` completions of so many tokens of each prompt by transformers."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(each)) + list(each) for each in prompts])
    mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in prompts])

    def run(new: int) -> object:
        made = model.generate(
            ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0,
            max_new_tokens=new, num_return_sequences=k, pad_token_id=0,
        )  # fmt: skip
        assert made.shape == (k * len(prompts), width + new)
        return made

    return run


def costs(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], k: int, new: int, dtype: str = "float32"
) -> dict[str, Cost]:
    """Of prefill, and of decoding all further tokens."""
    config, head = model.config, model.get_output_embeddings().weight.numel()
    layers = sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    pair = 4 * head_dim * config.num_attention_heads * config.num_hidden_layers
    tokens = sum(map(len, prompts))
    prefill = 2 * layers * tokens + 2 * head * len(prompts) + pair * sum(len(ids) ** 2 / 2 for ids in prompts)
    steps, rows = new - 1, k * len(prompts)
    seen = sum(k * (len(ids) + step) for ids in prompts for step in range(1, new))
    decoding = 2 * (layers + head) * rows * steps + pair * seen
    size = DTYPES[dtype].itemsize * (layers + head)
    return {"prefill": Cost(prefill, size), "decoding": Cost(decoding, size * steps)}


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
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
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
    of_dtype = {dtype: copy.deepcopy(model).to(DTYPES[dtype]) for dtype in options.dtypes}
    runs: dict[str, Callable[[int], object]] = {}
    engines: dict[str, TorchEngine] = {}
    for dtype, own in of_dtype.items():
        runs[f"{dtype}, generate"] = with_generate(own, prompts, options.k)
        engines[dtype] = engine = TorchEngine({"p": copy.deepcopy(own)}, endless)
        runs[dtype] = lambda new, engine=engine: generate(engine, prompts, options.k, new)
    if options.vllm:
        for dtype in options.dtypes:
            runs[f"{dtype}, vLLM"] = vllm_engine(model, tokenizer, dtype, prompts, options.k)
    times: dict[tuple[str, str], list[float]] = {}
    rates: dict[str, list[dict[str, float]]] = {dtype: [] for dtype in options.dtypes}
    for repetition in range(options.repetitions + 1):
        row: dict[tuple[str, str], float] = {}
        rate = {dtype: machine_rates(model, dtype) for dtype in options.dtypes}
        for name, run in runs.items():
            row[name, "prefill"] = seconds(lambda run=run: run(1))
            whole = seconds(lambda run=run: run(options.new))
            row[name, "decoding"] = whole - row[name, "prefill"]
        print(f"repetition {repetition}: {', '.join(f'{n} {p} {v:.2f} s' for (n, p), v in row.items())}", flush=True)
        if repetition:  # the first warms up
            for dtype in options.dtypes:
                rates[dtype].append(rate[dtype])
            for key, value in row.items():
                times.setdefault(key, []).append(value)

    tokens = {"prefill": total, "decoding": options.k * len(prompts) * (options.new - 1)}
    print("\n| part | dtype | tokens per CPU-second | time over the floor | time over the torch engine's |")
    print("| --- | --- | --- | --- | --- |")
    for (name, part), values in sorted(times.items(), key=lambda item: item[0][::-1]):
        dtype = name.partition(",")[0]
        cost = costs(model, prompts, options.k, options.new, dtype)[part]
        over = median_ratio(values, [cost.floor_s(rate) for rate in rates[dtype]])
        against = median_ratio(values, times[dtype, part]) if name != dtype else ""
        print(f"| {part} | {name} | {tokens[part] / statistics.median(values):.0f} | {over} | {against} |")
    for dtype, found in rates.items():
        gflops, gbytes = (statistics.median(rate[key] for rate in found) / 1e9 for key in ("operations/s", "bytes/s"))
        print(f"\nrates of the floor in {dtype}: {gflops:.0f} GFLOP/s, {gbytes:.1f} GB/s")
    print("behaviour log-probs against transformers' float32 by a plain forward pass:")
    for name, engine in engines.items():
        few = prompts[:4]
        print(f"  {name}: {differences(model, few, generate(engine, few, 2, options.new))}")


if __name__ == "__main__":
    main()

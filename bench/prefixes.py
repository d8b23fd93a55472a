"""What the torch engine gains by keeping prefixes over turns (`engine.prefix_cache_gib`), and what it costs elsewhere.

`python bench/prefixes.py [SETTING ...]` uses one thread and measures CPU time, so that other processes on the machine
matter little.  Two engines, which keep prefixes and do not, play the same in turn within each repetition; the figures
are medians, and ratios are of pairs of one repetition.  Prefill is the time of `Decoder.admit`, decoding that of
`Decoder.step`, `rest` what worlds and prompts take.

``chat``    SmolLM2: chats of 4 turns about word problems.  Each turn's prompt is that of the turn before, what was
            said, and 24 tokens of the user's.  K chats of each task go on by themselves, as chains do.
``tree``    the same, but K candidates of each turn, of which the first one goes on.
``new``     SmolLM2: prompts that have nothing in common, in one turn.
``laptop``  the laptop's base model on Plan-Path with `env.history=true`: episodes of 4 turns, K = 4, of two agents.
``single``  the same without history: prompts begin with nothing that was said.

The floors are those of `bench/smollm2.py` without attention: operations on the weights, of prefill for the tokens that
are read, or the weights' bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import statistics
from collections.abc import Callable, Sequence
from random import Random

import torch
from smollm2 import Cost, machine_rates, median_ratio, prompts_of, seconds
from transformers.utils import logging

from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.history import WithHistory
from troupe.experience import Completion, Request, Sampling
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.tree import TreeSampler

Tokens = tuple[int, ...]
K, TURNS, NEW, SAID_BY_USER, GIB = 4, 4, 24, 24, 1


class Timed:
    """An engine with one policy, and the CPU time that its parts take."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine
        (self.decoder,) = engine._decoders.values()
        self.times = {"prefill": 0.0, "decoding": 0.0}
        self.calls = {"prefill": 0, "decoding": 0}
        self.decoder.admit = self._timed("prefill", self.decoder.admit)  # type: ignore[method-assign]
        self.decoder.step = self._timed("decoding", self.decoder.step)  # type: ignore[method-assign]

    def _timed(self, part: str, method: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: object) -> None:
            self.times[part] += seconds(lambda: method(*arguments))
            self.calls[part] += 1

        return run

    def measure(self, work: Callable[[TorchEngine], object]) -> dict[str, float]:
        """CPU seconds of ``work``, all and by part; the tokens that were read, and the decoding steps."""
        asyncio.run(self.engine.forget())
        self.times.update(prefill=0.0, decoding=0.0)
        before, steps = self.decoder.forwarded.copy(), self.calls["decoding"]
        whole = seconds(lambda: work(self.engine))
        return {
            "all": whole,
            **self.times,
            "rest": whole - sum(self.times.values()),
            "prompt tokens": self.decoder.forwarded["prompt"] - before["prompt"],
            "completion tokens": self.decoder.forwarded["completion"] - before["completion"],
            "steps": self.calls["decoding"] - steps,
        }


def floors(row: dict[str, float], layers: int, head: int, rates: dict[str, float]) -> dict[str, float]:
    """Seconds of prefill and decoding at least, for a model of ``layers`` + ``head`` weights."""
    size, read = layers + head, row["completion tokens"]
    return {
        "prefill": Cost(2 * layers * row["prompt tokens"], 4 * layers).floor_s(rates),
        "decoding": Cost(2 * size * read, 4 * size * row["steps"]).floor_s(rates),
    }


def ask(engine: TorchEngine, prompts: Sequence[Tokens], k: int, turn: int) -> list[list[Completion]]:
    async def all_of() -> list[list[Completion]]:
        return await asyncio.gather(
            *(
                engine.generate(Request("p", ids, k, Sampling(max_tokens=NEW), seed=100 * turn + i, key=(i,)))
                for i, ids in enumerate(prompts)
            )
        )

    return asyncio.run(all_of())


def chats(engine: TorchEngine, prompts: Sequence[Tokens], vocabulary: int, *, branching: bool) -> None:
    """Chats of ``TURNS`` turns that begin with ``prompts``."""
    rng = Random(0)
    for turn in range(TURNS):
        k = K if branching or not turn else 1
        nodes = ask(engine, prompts, k, turn)
        prompts = [
            (*ids, *completion.token_ids, *rng.choices(range(100, vocabulary), k=SAID_BY_USER))
            for ids, node in zip(prompts, nodes, strict=True)
            for completion in (node[:1] if branching else node)
        ]


def smollm2(setting: str, tasks: int) -> tuple[list[Timed], Callable[[TorchEngine], object], tuple[int, int]]:
    """Engines without and with prefixes, what they do, and the model's numbers: of its layers, and of its head."""
    model, tokenizer = load_model("smollm2_q4").eval(), copy.deepcopy(load_tokenizer("smollm2_q4"))
    prompts = prompts_of(tokenizer, tasks)
    model.generation_config.eos_token_id = tokenizer.eos_token = None  # every completion has the stated length
    rng, vocabulary = Random(1), model.config.vocab_size
    if setting == "new":
        prompts = [tuple(rng.choices(range(100, vocabulary), k=100)) for _ in range(tasks)]
    engines = [
        Timed(TorchEngine({"p": each}, tokenizer, prefix_cache_gib=gib))
        for each, gib in ((copy.deepcopy(model), 0), (model, GIB))
    ]

    def play(engine: TorchEngine) -> None:
        if setting == "new":
            ask(engine, prompts, K, 0)
        else:
            chats(engine, prompts, vocabulary, branching=setting == "tree")

    layers = sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
    return engines, play, (layers, model.get_output_embeddings().weight.numel())


def laptop(setting: str, tasks: int) -> tuple[list[Timed], Callable[[TorchEngine], object], None]:
    """As :func:`smollm2`."""
    model, tokenizer = load_model("laptop").eval(), load_tokenizer("laptop")
    world = PlanPath(horizon=TURNS)
    played = world.tasks("train", tasks, 0)
    sampler = TreeSampler(k=K)
    engines = [
        Timed(TorchEngine({"p": copy.deepcopy(model)}, tokenizer, 1024, prefix_cache_gib=gib)) for gib in (0, GIB)
    ]

    def play(engine: TorchEngine) -> None:
        client = PolicyClient("p", engine, tokenizer, model.config.max_position_embeddings, Sampling(max_tokens=48))
        team = dict.fromkeys(world.agents, client)
        asyncio.run(sampler.collect(WithHistory(world) if setting == "laptop" else world, played, team, 0))

    return engines, play, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", nargs="*", default=["chat", "tree", "new", "laptop", "single"])
    parser.add_argument("--tasks", type=int, help="default: 3 with SmolLM2, else 96")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    for setting in options.setting:
        small = setting in ("laptop", "single")
        tasks = options.tasks or (96 if small else 3)
        engines, play, numbers = (laptop if small else smollm2)(setting, tasks)
        rows: list[list[dict[str, float]]] = []
        rates: list[dict[str, float]] = []
        for repetition in range(options.repetitions + 1):
            if numbers:
                rates.append(machine_rates(engines[0].decoder.model))
            turn = 1 if repetition % 2 else -1
            rows.append([engine.measure(play) for engine in engines[::turn]][::turn])
            without, kept = (row["all"] for row in rows[-1])
            print(f"  {setting}, repetition {repetition}: {without:.2f} s without, {kept:.2f} s with", flush=True)
        report(setting, tasks, rows[1:], engines)  # the first warms up
        if numbers:
            for which, name in enumerate(("without", "with")):
                least = [floors(row[which], *numbers, rate) for row, rate in zip(rows, rates, strict=True)][1:]
                for part in ("prefill", "decoding"):
                    over = median_ratio([row[which][part] for row in rows[1:]], [each[part] for each in least])
                    print(f"  {part} {name}, over the floor: {over}")


def report(setting: str, tasks: int, rows: Sequence[Sequence[dict[str, float]]], engines: Sequence[Timed]) -> None:
    prefixes = engines[1].decoder.prefixes
    print(f"{setting}: {tasks} tasks, K = {K}, {len(rows)} repetitions; at the end ", end="")
    print(f"{prefixes.bytes / 2**20:.0f} MiB in {len(prefixes)} sequences are kept")
    for part in rows[0][0]:
        without, kept = ([row[which][part] for row in rows] for which in (0, 1))
        ratio = median_ratio(without, kept) if all(kept) else "-"
        print(f"  {part:17} {statistics.median(without):9.2f} {statistics.median(kept):9.2f}, without / with {ratio}")


if __name__ == "__main__":
    main()

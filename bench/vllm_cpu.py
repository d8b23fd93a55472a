"""vLLM on this machine's CPU: an iteration's rollout against raw ``LLM.generate``, and how long an update takes.

``throughput`` plays boards of Sokoban with sampler, worlds and engine, notes every request, and gives the very same
requests to a bare ``LLM`` of the same settings: in the same rounds (what a turn depends on must have been said), and
all at once, which no episode can do.  The ``LLM`` lives in this process, which spares it all messages; as it comes,
vLLM gives it a process of its own, which is measured too.  The torch engine plays the same boards.  Repetitions are
interleaved, and ratios are taken within each.

``requests`` gives ``--requests`` first turns of boards, of one completion each, all at once to the engine without
lockstep, to vLLM's own client in the same process (the difference is what the engine costs), and to ``LLM.generate``.

``update`` loads new weights into the engine three times and tells where the time goes.  Shapes: the laptop's base
model, its adapters (r = 16 on all linear layers), the same merged, and a Qwen3-0.6B of random weights in bfloat16.

Seconds are of the wall and of the CPU (learner's process and engine's): other work on the machine disturbs the former.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from troupe.envs.base import TeamEnv
from troupe.experience import Completion, Request, Sampling
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.models.learning import adapters
from troupe.models.learning.settings import LoraSettings
from troupe.rollout.engines.base import Engine
from troupe.rollout.engines.lora import Adapted
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.engines.vllm import server, transfer
from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.rollout.engines.vllm.launch import GIB, environment
from troupe.rollout.engines.vllm.server import Pending
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.tree import TreeSampler
from troupe.setup.instantiation import build_world

TICKS = os.sysconf("SC_CLK_TCK")
SAMPLING = Sampling(max_tokens=40)


@dataclass
class Clock:
    """Seconds of the wall and of the CPU, with the engine's process ``pid``."""

    pid: int | None
    wall: float = 0.0
    cpu: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), self._spent()
        yield
        self.wall, self.cpu = time.perf_counter() - wall, self._spent() - cpu

    def _spent(self) -> float:
        own = time.process_time()
        if self.pid is None:
            return own
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return own + (int(fields[11]) + int(fields[12])) / TICKS


@dataclass
class Noted:
    """An engine that notes what it is asked, round by round: the n-th request of every board is in round n."""

    engine: Engine
    rounds: list[list[Request]] = field(default_factory=list)
    _asked: Counter[Any] = field(default_factory=Counter)

    async def generate(self, request: Request) -> list[Completion]:
        board = request.key[0]
        if self._asked[board] == len(self.rounds):
            self.rounds.append([])
        self.rounds[self._asked[board]].append(request)
        self._asked[board] += 1
        return await self.engine.generate(request)


def played(
    world: TeamEnv, tokenizer: PreTrainedTokenizerFast, boards: int, seed: int
) -> Callable[[Any], Awaitable[int]]:
    """Plays boards with an engine; returns the tokens made."""
    tasks = world.tasks("train", boards, seed)

    async def play(engine: Any) -> int:
        clients = {agent: PolicyClient("policy", engine, tokenizer, 512, SAMPLING) for agent in world.agents}
        found = await TreeSampler(k=4).collect(world, tasks, clients, seed)
        return sum(len(c.completion.token_ids) for (episode,) in found for _, c in episode.candidates())

    return play


def sokoban() -> TeamEnv:
    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("train", overrides=["run_dir=none", "name=bench"])
        return build_world("env", OmegaConf.to_container(cfg.env, resolve=True))


def bare(engine: VllmEngine, path: Path, rows: int, apart: bool) -> tuple[Any, int | None]:
    """``LLM.generate`` of the same model and settings, in this process or in one ``apart``, whose id is the second."""
    with environment(engine.settings):
        from vllm import LLM, envs

        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(apart))
        envs.disable_envs_cache()  # an LLM in this process has read them for good
        llm = LLM(
            str(path),
            dtype="float32",
            max_model_len=512,
            max_num_seqs=rows,
            max_num_batched_tokens=8192,
            kv_cache_memory_bytes=int(0.5 * GIB),
            block_size=32,
            enable_prefix_caching=True,
            enforce_eager=True,
            logprobs_mode="processed_logprobs",
            generation_config="vllm",
            disable_log_stats=True,
        )
    gc.collect()
    gc.freeze()  # as the engine does: its modules are not looked through again and again
    replies = engine.replies

    async def generate(rounds: Sequence[Sequence[Request]]) -> int:
        made = 0
        for waiting in rounds:
            prompts = [{"prompt_token_ids": list(request.prompt_ids)} for request in waiting]
            found = llm.generate(prompts, [replies.parameters(request) for request in waiting], use_tqdm=False)
            made += sum(len(answer.token_ids) for output in found for answer in output.outputs)
        llm.reset_prefix_cache()
        return made

    core = llm.llm_engine.engine_core
    return generate, core.resources.engine_manager.processes[0].pid if apart else None


async def throughput(boards: int, repetitions: int, rows: int, folder: Path) -> None:
    model, tokenizer = load_model("laptop"), load_tokenizer("laptop")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    world = sokoban()
    ours = VllmEngine({"policy": load_model("laptop")}, tokenizer, max_batch_rows=rows)
    embedded = TorchEngine({"policy": model}, tokenizer, max_batch_rows=1024)
    (raw, _), (raw_apart, pid_apart) = (bare(ours, folder, rows, apart) for apart in (False, True))
    speeds: dict[str, list[tuple[float, float]]] = {}

    async def timed(label: str, pid: int | None, work: Callable[[], Awaitable[int]]) -> int:
        clock = Clock(pid)
        with clock.running():
            made = await work()
        speeds.setdefault(label, []).append((made / clock.wall, made / clock.cpu))
        return made

    for repetition in range(repetitions + 1):
        play, noted = played(world, tokenizer, boards, repetition), Noted(ours)
        pid = ours.server.process.pid
        made = await timed("sampler + worlds + vLLM", pid, lambda play=play, noted=noted: play(noted))
        await ours.load("policy", model.state_dict(), repetition)  # forgets the prefixes, as after an update
        ours.lockstep = False
        await timed("the same without lockstep", pid, lambda play=play: play(ours))
        ours.lockstep = True
        await ours.load("policy", model.state_dict(), repetition)
        await timed("sampler + worlds + torch", None, lambda play=play: play(embedded))

        rounds, at_once = noted.rounds, [[request for waiting in noted.rounds for request in waiting]]
        again = await timed("LLM.generate, the same rounds", None, partial(raw, rounds))
        await timed("the same, with vLLM's process apart", pid_apart, partial(raw_apart, rounds))
        await timed("LLM.generate, all at once", None, partial(raw, at_once))
        assert again == made, f"the same requests gave {again} tokens instead of {made}"
        if not repetition:
            asked = sum(map(len, noted.rounds))
            print(f"{boards} boards: {asked} requests in {len(noted.rounds)} rounds, {made} tokens; warming up")
            speeds.clear()
    title = f"medians of {repetitions}"
    print(f"{title:36s} {'tokens/s':>8s} {'of CPU':>8s}   first line / this: median (quartiles)")
    first = speeds["sampler + worlds + vLLM"]
    for label, values in speeds.items():
        wall, cpu = (statistics.median(column) for column in zip(*values, strict=True))
        ratios = [mine / theirs for (mine, _), (theirs, _) in zip(first, values, strict=True)]
        low, middle, high = statistics.quantiles(ratios, method="inclusive")
        print(f"{label:36s} {wall:8.0f} {cpu:8.0f}   {middle:.2f} ({low:.2f} to {high:.2f})", flush=True)
    await ours.close()
    await embedded.close()


async def requests(count: int, repetitions: int, rows: int, folder: Path) -> None:
    model, tokenizer = load_model("laptop"), load_tokenizer("laptop")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    engine = VllmEngine({"policy": model}, tokenizer, lockstep=False, max_batch_rows=rows)
    noted = Noted(engine)
    await played(sokoban(), tokenizer, count, 0)(noted)
    asked = [replace(request, n=1) for request in noted.rounds[0]][:count]
    (inside, _), (apart, pid_apart) = (bare(engine, folder, rows, apart) for apart in (False, True))

    async def by_engine() -> int:
        answers = await asyncio.gather(*map(engine.generate, asked))
        return sum(len(completion.token_ids) for answer in answers for completion in answer)

    async def by_client() -> int:
        waiting = [Pending(request, asyncio.Future()) for request in asked]
        await engine.server._add_all(waiting)
        outputs = [await each.queue.get() for each in waiting]
        return sum(len(answer.token_ids) for output in outputs for answer in output.outputs)

    pid = engine.server.process.pid
    ways = {
        "engine": (pid, by_engine),
        "vLLM's client": (pid, by_client),
        "LLM.generate": (pid_apart, partial(apart, [asked])),
        "LLM.generate, vLLM's process in the caller's": (None, partial(inside, [asked])),
    }
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for repetition in range(repetitions + 1):
        for way, (process, work) in ways.items():
            await engine.load("policy", model.state_dict(), repetition)  # forgets the prefixes
            own, both = Clock(None), Clock(process)
            with both.running(), own.running():
                made = await work()
            if repetition:
                found[way].append((made / both.wall, own.cpu / len(asked) * 1e3))
    print(f"{len(asked)} requests, medians of {repetitions}; engine's tokens/s / this one's: median (quartiles)")
    for way, values in found.items():
        speed, cost = (statistics.median(column) for column in zip(*values, strict=True))
        ratios = [mine / theirs for (mine, _), (theirs, _) in zip(found["engine"], values, strict=True)]
        low, middle, high = statistics.quantiles(ratios, method="inclusive")
        print(
            f"{way:44s} {speed:6.0f} tokens/s, {cost:.3f} ms of the caller's CPU a completion; "
            f"{middle:.2f} ({low:.2f} to {high:.2f})"
        )
    await engine.close()


# ---- updates ------------------------------------------------------------------------------------------------------


def large(device: str = "cpu", **changes: int) -> Qwen3ForCausalLM:
    """Qwen3-0.6B's shape but for ``changes``, random weights in bfloat16."""
    heads = dict(num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=512)
    sizes = dict(vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28)
    config = Qwen3Config(**heads | sizes | changes, tie_word_embeddings=True, bos_token_id=None)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model


@torch.no_grad()
def moved(weights: Mapping[str, Tensor], seed: int, size: float) -> None:
    """All weights a little, in place, as by an update; tied ones once."""
    torch.manual_seed(seed)
    for tensor in {tensor.data_ptr(): tensor for tensor in weights.values()}.values():
        tensor += size * torch.randn_like(tensor)


@contextmanager
def stages(seconds: dict[str, float], written: list[int]) -> Iterator[None]:
    """Within, what the server does is timed, and what travels through shared memory is counted."""
    names = ("send", "forget", "digests", "probe")
    before = {name: getattr(server.EngineServer, name) for name in names}
    parts = transfer.parts

    def timed(name: str) -> Any:
        async def call(*given: Any) -> Any:
            started = time.perf_counter()
            try:
                return await before[name](*given)
            finally:
                seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started

        return call

    def counted(*given: Any) -> Iterator[Path]:
        for path in parts(*given):
            written.append(path.stat().st_size)
            yield path

    for name in names:
        setattr(server.EngineServer, name, timed(name))
    transfer.parts = counted
    yield
    for name in names:
        setattr(server.EngineServer, name, before[name])
    transfer.parts = parts


async def update(shape: str, repetitions: int) -> None:
    dtype = "bfloat16" if shape == "0.6b" else "float32"
    model = large() if shape == "0.6b" else load_model("laptop")
    tokenizer = load_tokenizer("laptop")  # whatever the model
    given: dict[str, Any] = {"dtype": dtype, "kv_cache_gib": 0.5}
    started = time.perf_counter()
    if shape in ("laptop", "0.6b"):
        weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        engine = VllmEngine({"policy": model}, tokenizer, **given)
    else:
        whole = adapters.attach(model, "laptop", {"policy": LoraSettings(r=16, alpha=32)}, {"policy": 0})
        weights = dict(adapters.weights(whole, "policy"))
        speaking = Adapted(adapters.base_of(whole), adapters.weights(whole, "policy"), 2.0)
        engine = VllmEngine({"policy": speaking}, tokenizer, lora=shape, **given)  # type: ignore[arg-type]
    await engine.generate(Request("policy", tuple(range(4, 40)), 1, Sampling(max_tokens=2), 0, (0,)))
    print(f"{shape}, {dtype}: started and proven in {time.perf_counter() - started:.1f} s")
    number = engine.settings.torch_dtype.itemsize
    size = number * sum(math.prod(info.shape) for info in engine.expected.source.metadata())
    for version in range(1, repetitions + 1):
        moved(weights, version, 0.01)
        seconds: dict[str, float] = {}
        written: list[int] = []
        clock = Clock(engine.server.process.pid)
        with stages(seconds, written), clock.running():
            measured = await engine.load("policy", weights, version)
        written += [sum(tensor.nbytes for tensor in adapter.tensors.values()) for adapter in engine.expected.adapters]
        told = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
        print(
            f"  update {version}: {clock.wall:.2f} s (CPU {clock.cpu:.2f}); {told}; learner's digests and probe "
            f"{clock.wall - sum(seconds.values()):.2f}; probe_nats {measured['probe_nats']:.2g}; sent "
            f"{sum(written) / 1e6:.2f} MB, {sum(written) / size:.3f} of the model's {size / 1e6:.2f} MB",
            flush=True,
        )
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["throughput", "requests", "update"])
    parser.add_argument("--shape", choices=["laptop", "adapter", "merged", "0.6b"], default="laptop")
    parser.add_argument("--boards", type=int, default=96)
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--rows", type=int, default=256, help="engine.max_batch_rows")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.set_verbosity_error()
    if arguments.what == "update":
        asyncio.run(update(arguments.shape, arguments.repetitions))
    else:
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as folder:
            work, count = (
                (throughput, arguments.boards) if arguments.what == "throughput" else (requests, arguments.requests)
            )
            asyncio.run(work(count, arguments.repetitions, arguments.rows, Path(folder)))


if __name__ == "__main__":
    main()

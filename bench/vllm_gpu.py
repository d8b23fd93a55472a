"""vLLM on a GPU: one call that checks what Troupe does with it there, and measures.  ``make test-gpu`` runs all of it.

    python bench/vllm_gpu.py [CHECK ...] [--device cpu] [--small] [--model FOLDER]

``agreement``  log-probabilities against ``transformers`` at the start and after three updates, for whole models and for
               adapters, by each way of transfer that the machine has
``sleep``      levels 1 and 2, for both: memory that is offloaded, and log-probabilities after an update while asleep
``run``        a few iterations of ``sokoban_specialized engine=vllm`` with learners and engines on one GPU
``update``     Qwen3-1.7B's shape with random weights in bfloat16: seconds of an update, tokens/s, peak memory
``rollout``    two adapters on the model in FOLDER: requests to the engine, one of each episode, beside the very same to
               ``LLM.generate`` all at once, in turn

Each check prints lines of one table; the first that fails ends the program with its error.  With ``--device cpu
--small`` the same lines run on vLLM's CPU build with shared memory and small shapes, which shows that the program
itself works, and nothing about a GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging
from vllm_cpu import large, moved, stages

from troupe.experience import Completion, Request, Sampling
from troupe.models.bases.base_models import base_path
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.models.learning import adapters
from troupe.models.learning.settings import LoraSettings
from troupe.rollout.engines.lora import Adapted
from troupe.rollout.engines.vllm import launch
from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.rollout.engines.vllm.launch import find_placement
from troupe.rollout.engines.vllm.transfer import saved_adapter

PROMPT = tuple(range(4, 44))
LORA = {"tool": LoraSettings(r=8, alpha=16), "plan": LoraSettings(r=16, alpha=16)}
NATS = {"cpu": 1e-4, "cuda": 0.05}
"""How far float32 log-probabilities may be apart; some of vLLM's kernels for a GPU multiply in TF32."""
COARSE_NATS = 0.5
"""In bfloat16: on a GPU vLLM adds adapters in no finer precision."""
TELLS = 3
"""How many times farther the weights before an update must be apart, or the comparison would prove nothing."""
TARGET_S = 0.3


@dataclass(frozen=True)
class Machine:
    """Where it runs, and whether with small shapes."""

    device: str
    small: bool
    model: Path | None = None

    @property
    def ways(self) -> list[dict[str, str]]:
        """Keys of every way of transfer that there is."""
        if self.device == "cpu":
            return [{"transfer": "shared_memory"}]
        ways = [{"transfer": "ipc"}, {"transfer": "shared_memory"}]
        return ways + ([{"transfer": "nccl", "device": "cuda:1"}] if torch.cuda.device_count() > 1 else [])

    @property
    def nats(self) -> float:
        return NATS[self.device]


@dataclass
class Gauge:
    """The memory of the first GPU that all processes together use, GiB; 0 throughout on a CPU."""

    device: str
    peak: float = 0.0
    _done: threading.Event = field(default_factory=threading.Event)

    def now(self) -> float:
        if self.device == "cpu":
            return 0.0
        free, total = torch.cuda.mem_get_info(0)
        return (total - free) / 2**30

    @contextmanager
    def watching(self) -> Iterator[Gauge]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield self
        finally:
            self._done.set()
            thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.peak = max(self.peak, self.now())


def row(check: str, what: str, found: str) -> None:
    print(f"| {check:9} | {what:44} | {found:70} |", flush=True)


# ---- small models -------------------------------------------------------------------------------------------------


def tiny(machine: Machine, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=256)
    sizes = dict(vocab_size=len(tokenizer), hidden_size=256, intermediate_size=512, num_hidden_layers=3)
    ids = dict(eos_token_id=tokenizer.eos_token_id, bos_token_id=None, pad_token_id=tokenizer.pad_token_id)
    return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, **ids, initializer_range=0.1)).eval().to(machine.device)


@torch.no_grad()
def apart(model: PreTrainedModel | PeftModel, found: Sequence[Completion]) -> float:
    """The largest difference of a log-probability to ``model``'s own, nats."""
    worst = 0.0
    for completion in found:
        ids = torch.tensor([[*PROMPT, *completion.token_ids]], device=model.device)
        logits = model(ids).logits[0, len(PROMPT) - 1 : -1].float()
        own = torch.log_softmax(logits, -1).gather(1, ids[0, len(PROMPT) :, None])[:, 0].cpu()
        worst = max(worst, (own - torch.tensor(completion.logprobs)).abs().max().item())
    return worst


class Whole:
    """A learner with one policy, and an engine that ought to follow it."""

    policies = ("plan",)

    def __init__(self, machine: Machine, **keys: Any) -> None:
        tokenizer = load_tokenizer("laptop")
        self.model, self.nats = tiny(machine, tokenizer), machine.nats
        self.engine = VllmEngine({"plan": copy.deepcopy(self.model)}, tokenizer, **small(self.nats), **keys)

    def weights(self, policy: str) -> Mapping[str, Tensor]:
        return {name: tensor.detach() for name, tensor in self.model.state_dict().items()}

    def speaking(self, policy: str) -> PreTrainedModel | PeftModel:
        return self.model


class Adapters:
    """Two adapters on one base, which one engine holds."""

    policies = tuple(LORA)

    def __init__(self, machine: Machine, **keys: Any) -> None:
        tokenizer = load_tokenizer("laptop")
        dtype = torch.float32 if machine.device == "cpu" else torch.bfloat16
        self.nats = machine.nats if machine.device == "cpu" else COARSE_NATS
        self.model = adapters.attach(tiny(machine, tokenizer).to(dtype), "base", LORA, {"tool": 1, "plan": 2})
        self.model.to(machine.device, dtype)  # nothing computes under autocast here
        base = adapters.base_of(self.model)
        given = {name: Adapted(base, self.weights(name), LORA[name].scale) for name in LORA}
        own = copy.deepcopy(base)  # the engine empties what it is given
        self.engine = VllmEngine(
            {name: Adapted(own, each.weights, each.scale) for name, each in given.items()},
            tokenizer,
            dtype=str(dtype).removeprefix("torch."),
            **small(self.nats),
            **keys,
        )

    def weights(self, policy: str) -> Mapping[str, Tensor]:
        return adapters.weights(self.model, policy)

    def speaking(self, policy: str) -> PreTrainedModel | PeftModel:
        adapters.activate(self.model, policy)
        return self.model


def small(nats: float) -> dict[str, Any]:
    return {"kv_cache_gib": 0.1, "max_batch_rows": 64, "restarts": 0, "lockstep": False}


async def followed(machine: Machine, team: Whole | Adapters, version: int) -> tuple[float, float]:
    """Move every policy, have it loaded, asleep where the engine offloads memory, and compare.

    The largest difference (nats) and the least memory offloaded (GiB).
    """
    worst, least, gauge = 0.0, float("inf"), Gauge(machine.device)
    for policy in team.policies:
        before = copy.deepcopy(team.speaking(policy))
        if version:
            moved(team.weights(policy), 10 * version + len(policy), 0.2 if isinstance(team, Adapters) else 0.02)
            awake = gauge.now()
            await team.engine.sleep()
            least = min(least, awake - gauge.now())
            await team.engine.load(policy, team.weights(policy), version)
            await team.engine.wake()
        found = await team.engine.generate(Request(policy, PROMPT, 4, Sampling(max_tokens=24), version, (version,)))
        now, stale = apart(team.speaking(policy), found), apart(before, found)
        assert now <= team.nats, f"'{policy}', version {version}: {now:.3g} nats apart, more than {team.nats:g}"
        assert not version or stale > TELLS * team.nats, f"the update moves log-probabilities by {stale:.3g} only"
        worst = max(worst, now)
    return worst, least


# ---- checks -------------------------------------------------------------------------------------------------------


async def agreement(machine: Machine) -> None:
    for kind in (Whole, Adapters):
        for way in machine.ways:
            team = kind(machine, **way)
            try:
                worst = max([(await followed(machine, team, version))[0] for version in range(4)])
            finally:
                await team.engine.close()
            row("agreement", f"{kind.__name__.lower()}, {way['transfer']}", f"{worst:.2g} nats at most, 3 updates")


async def sleep(machine: Machine) -> None:
    for kind in (Whole, Adapters):
        for level in (1, 2):
            team = kind(machine, sleep=level)
            try:
                found = [await followed(machine, team, version) for version in range(4)]
            finally:
                await team.engine.close()
            worst, offloaded = max(nats for nats, _ in found), min(gib for _, gib in found)
            assert machine.device == "cpu" or offloaded >= 0.1, (
                f"level {level} offloads {offloaded:.3f} GiB, its cache has 0.1"
            )
            row(
                "sleep",
                f"{kind.__name__.lower()}, level {level}",
                f"{worst:.2g} nats at most, {offloaded:.3f} GiB offloaded",
            )


async def run(machine: Machine) -> None:
    few = ["loop.tasks_per_iteration=3", "env.horizon=2"] if machine.small else ["loop.tasks_per_iteration=24"]
    words = [*few, "loop.eval_every=100", "loop.validation_tasks=3", "loop.test_tasks=10", "engine.sleep=1"]
    iterations = 2 if machine.small else 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        command = [sys.executable, "-m", "troupe", "train", "experiment=sokoban_specialized", "engine=vllm", *words]
        command += [f"loop.iterations={iterations}", f"run_dir={path}"]
        with Gauge(machine.device).watching() as gauge:
            started = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        assert json.loads((path / "summary.json").read_text())["status"] == "finished"
    assert len(rows) == iterations
    nats = max(each["rollout/probe_nats"] for each in rows)
    kl = max(abs(each[f"train/{policy}/behaviour_kl_nats"]) for each in rows for policy in ("tool", "plan"))
    assert nats <= machine.nats and kl <= machine.nats, f"probe {nats:.3g}, behaviour KL {kl:.3g} nats"
    seconds = {name: max(each[f"time/{name}_s"] for each in rows[1:]) for name in ("rollout", "update", "load")}
    told = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    row("run", f"{iterations} iterations, {time.perf_counter() - started:.0f} s in all", f"probe {nats:.1g}; {told}")
    row("run", "peak memory of the GPU, all processes", f"{gauge.peak:.2f} GiB")


async def update(machine: Machine) -> None:
    shape = dict(hidden_size=2048, intermediate_size=6144)
    if machine.small:
        shape = dict(vocab_size=5000, hidden_size=256, intermediate_size=512, num_hidden_layers=2)
    model = large(machine.device, max_position_embeddings=2048, **shape)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    room = {"kv_cache_gib": 1.0 if machine.small else 8.0, "max_batch_rows": 64 if machine.small else 256}
    given = {"dtype": "bfloat16", "sleep": 1, "lockstep": False, "restarts": 0}
    with Gauge(machine.device).watching() as gauge:
        engine = VllmEngine({"plan": copy.deepcopy(model)}, load_tokenizer("laptop"), **room, **given)
        try:
            await _updates(machine, engine, weights)
            await _speed(machine, engine)
        finally:
            await engine.close()
    row("update", "peak memory of the GPU, all processes", f"{gauge.peak:.2f} GiB")


async def _updates(machine: Machine, engine: VllmEngine, weights: dict[str, Tensor]) -> None:
    size = sum(tensor.nbytes for tensor in weights.values()) / 1e9
    sent: list[float] = []
    for version in range(1, 5):
        moved(weights, version, 1e-3)
        await engine.sleep()
        seconds: dict[str, float] = {}
        with stages(seconds, []):
            started = time.perf_counter()
            await engine.load("plan", weights, version)
            await engine.wake()
            whole = time.perf_counter() - started
        sent.append(seconds["send"])
        told = ", ".join(f"{name} {value:.3f}" for name, value in seconds.items())
        row("update", f"{version}: {size:.2f} GB, load and wake", f"{whole:.2f} s: {told}")
    best = min(sent[1:])
    row("update", f"transfer alone, least of 3 (target {TARGET_S} s)", f"{best:.3f} s")
    assert machine.device == "cpu" or best < TARGET_S, f"a transfer takes {best:.3f} s, the target is {TARGET_S} s"


async def _speed(machine: Machine, engine: VllmEngine) -> None:
    prompts, tokens = (4, 16) if machine.small else (128, 128)
    for repetition in range(2):  # the first warms up
        asked = [
            Request("plan", (7 + index, *PROMPT), 4, Sampling(max_tokens=tokens), index, (repetition, index))
            for index in range(prompts)
        ]
        started = time.perf_counter()
        found = await asyncio.gather(*map(engine.generate, asked))
        seconds = time.perf_counter() - started
    made = sum(len(completion.token_ids) for completions in found for completion in completions)
    row("update", f"{prompts} prompts, 4 candidates", f"{made / seconds:,.0f} tokens/s")


async def rollout(machine: Machine) -> None:
    folder = str(machine.model or base_path("laptop"))
    dtype = torch.float32 if machine.device == "cpu" else torch.bfloat16
    base, tokenizer = load_model(folder).to(machine.device, dtype), load_tokenizer(folder)
    model = adapters.attach(base, "base", LORA, {"tool": 1, "plan": 2}).to(machine.device)
    own = adapters.base_of(model)
    given = {name: Adapted(own, adapters.weights(model, name), LORA[name].scale) for name in LORA}
    room = {"kv_cache_gib": 0.5 if machine.small else 8.0, "max_batch_rows": 512, "restarts": 0, "lockstep": False}
    engine = VllmEngine(given, tokenizer, dtype=str(dtype).removeprefix("torch."), **room)
    sampling = Sampling(temperature=0.7, max_tokens=16 if machine.small else 256)
    prompts = [tuple(range(10 + n, 110 + n)) for n in range(8 if machine.small else 32)]
    asked = [Request(each, ids, 8, sampling, 0, (n, each)) for n, ids in enumerate(prompts) for each in LORA]
    speeds = {}
    try:
        found = [await _speed_of(engine, asked) for _ in range(4)]
        speeds["engine"] = statistics.median(found[1:])  # the first warms up
    finally:
        await engine.close()
    found = _bare_speeds(engine, folder, asked)
    speeds["LLM.generate, all at once"] = statistics.median(found[1:])
    for label, speed in speeds.items():
        row("rollout", f"{label}, {len(asked)} requests of 8", f"{speed:,.0f} tokens/s")
    row("rollout", "engine / LLM.generate", f"{speeds['engine'] / speeds['LLM.generate, all at once']:.2f}")


async def _speed_of(engine: VllmEngine, asked: Sequence[Request]) -> float:
    """Tokens a second."""
    started = time.perf_counter()
    found = await asyncio.gather(*map(engine.generate, asked))
    made = sum(len(completion.token_ids) for completions in found for completion in completions)
    speed = made / (time.perf_counter() - started)
    await engine.server.forget()
    return speed


def _bare_speeds(engine: VllmEngine, folder: str, asked: Sequence[Request]) -> list[float]:
    """Of ``LLM.generate`` with the engine's arguments, after ``engine`` has closed, four times."""
    place = find_placement(engine.expected, 0)
    arguments = launch._arguments(engine.expected, place)
    for key in ("worker_extension_cls", "distributed_executor_backend", "weight_transfer_config"):
        arguments.pop(key, None)
    speeds = []
    with ExitStack() as stack:
        stack.enter_context(launch.environment(engine.settings, place))
        from vllm import LLM
        from vllm.lora.request import LoRARequest

        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
        llm = LLM(folder, **arguments)
        loras = {}
        for each in engine.expected.adapters:
            path = stack.enter_context(saved_adapter(Path(tempfile.gettempdir()), each.rank, each.tensors))
            loras[each.label] = LoRARequest(each.label, each.slot, str(path))
        prompts = [{"prompt_token_ids": list(request.prompt_ids)} for request in asked]
        parameters = [engine.replies.parameters(request) for request in asked]
        for _ in range(4):
            started = time.perf_counter()
            found = llm.generate(
                prompts, parameters, lora_request=[loras[each.policy] for each in asked], use_tqdm=False
            )
            made = sum(len(answer.token_ids) for output in found for answer in output.outputs)
            speeds.append(made / (time.perf_counter() - started))
            llm.reset_prefix_cache()
    return speeds


CHECKS: dict[str, Callable[[Machine], Awaitable[None]]] = {
    "agreement": agreement,
    "sleep": sleep,
    "run": run,
    "update": update,
    "rollout": rollout,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)}; default: all")
    parser.add_argument("--device", choices=list(NATS), default="cuda")
    parser.add_argument("--small", action="store_true", help="small shapes, to try the program itself")
    parser.add_argument("--model", type=Path, help="the folder of a model for rollout; default: the laptop's")
    arguments = parser.parse_args()
    if unknown := set(arguments.checks) - set(CHECKS):
        parser.error(f"no check {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU that torch can use; --device cpu --small tries the program itself")
    logging.set_verbosity_error()
    machine = Machine(arguments.device, arguments.small, arguments.model)
    where = torch.cuda.get_device_name(0) if machine.device == "cuda" else "CPU"
    row("check", f"{where}, torch {torch.__version__}", "found")
    for name in arguments.checks or CHECKS:
        asyncio.run(CHECKS[name](machine))
    print("all checks passed")


if __name__ == "__main__":
    main()

"""One vLLM engine of two tensor parallel processes on a CPU, against plain ``transformers``.

Both processes have the one key-value head, and the vocabulary is filled up: of 128 rows the second has 6 of 64.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch
from peft import PeftModel
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.experience import Completion, Request, Sampling
from troupe.models.learning import adapters
from troupe.models.learning.settings import LoraSettings
from troupe.rollout.engines.lora import Adapted
from troupe.rollout.engines.vllm import launch
from troupe.rollout.engines.vllm.digest import WeightsMismatchError
from troupe.rollout.engines.vllm.engine import VllmEngine

from ....processes import alive, below, command, until
from .conftest import SHARES_ENGINES, Build, Logprobs
from .test_vllm_lora import move

pytestmark = SHARES_ENGINES
POLICY = "plan"
PROMPT = tuple(range(10, 50))
SMALL: dict[str, Any] = {"kv_cache_gib": 0.05, "max_batch_rows": 64, "lockstep": False, "tensor_parallel": 2}
SPOILING = "tests.rollout.engines.vllm.spoiling.SpoilingExtension"
ADAPTER = LoraSettings(r=12, alpha=6, targets=["q_proj", "k_proj", "up_proj", "down_proj"])


@pytest.fixture(scope="module")
def model(build: Build) -> Qwen3ForCausalLM:
    return build(vocab_size=70)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model: Qwen3ForCausalLM, digits: PreTrainedTokenizerFast, grown: Build) -> AsyncIterator[VllmEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "EXTENSION", SPOILING)
        running = VllmEngine({POLICY: grown(model, 0, 0.0)}, digits, restarts=2, **SMALL)
        yield running
        processes = {pid for pid in below(os.getpid()) if "VLLM" in command(pid)}
        await running.close()
    assert len(processes) == 3 and not any(map(alive, processes))


def request(policy: str = POLICY, n: int = 4, seed: int = 1, **sampling: Any) -> Request:
    return Request(policy, PROMPT, n, Sampling(**{"max_tokens": 12} | sampling), seed, (seed,))


def agree(model: Any, plain: Logprobs, completions: list[Completion]) -> None:
    for completion in completions:
        expected = plain(model, PROMPT, completion.token_ids)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0.0)


async def test_a_process_that_is_killed_leaves_no_shared_memory_of_shards(engine: VllmEngine) -> None:
    """Its names are taken as soon as all have it."""
    [rendezvous] = engine.server.folder.glob("vllm_dist_*")
    assert not list(Path("/dev/shm").glob(f"{rendezvous.name}*"))


async def test_logprobs_are_the_models_at_the_start_and_after_three_updates(
    engine: VllmEngine, model: Qwen3ForCausalLM, grown: Build, plain_logprobs: Logprobs
) -> None:
    agree(model, plain_logprobs, await engine.generate(request()))
    for version in (1, 2, 3):
        learner = grown(model, version)
        measured = await engine.load(POLICY, learner.state_dict(), version)
        assert 0 <= measured["probe_nats"] < 1e-4
        completions = await engine.generate(request(seed=version))
        assert {completion.version for completion in completions} == {version}
        agree(learner, plain_logprobs, completions)
    assert engine.drain() == {"faults/engine": 0}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("layer", "outputs", "name", "everywhere"),
    [
        ("model.layers.1.input_layernorm", (), "model.layers.1.input_layernorm.weight", False),
        # Of each process's outputs 32 are a head of queries, 32 the head of keys that both have, 32 that of values.
        ("model.layers.0.self_attn.qkv_proj", (0, 32), "model.layers.0.self_attn.q_proj.weight", True),
        ("model.layers.0.self_attn.qkv_proj", (32, 64), "model.layers.0.self_attn.k_proj.weight", False),
        ("model.layers.1.self_attn.o_proj", (), "model.layers.1.self_attn.o_proj.weight", True),
        ("model.layers.1.mlp.gate_up_proj", (48, 96), "model.layers.1.mlp.up_proj.weight", True),
        ("model.embed_tokens", (), "model.embed_tokens.weight", True),
    ],
    ids=["norm", "queries", "keys", "by inputs", "fused", "vocabulary"],
)
async def test_a_wrong_shard_of_any_process_stops_the_run(
    engine: VllmEngine,
    model: Qwen3ForCausalLM,
    rank: int,
    layer: str,
    outputs: tuple[int, ...],
    name: str,
    everywhere: bool,
) -> None:
    """What is divided is wrong in the eyes of both processes, what each has by itself in those of one."""
    await engine.load(POLICY, model.state_dict(), 4)
    await engine.server.call("spoil", rank, layer, *outputs)
    digests = await engine.server.digests(engine.expected.model)
    right = [each == engine.expected.model.digests for each in digests]
    assert right == ([False, False] if everywhere else [rank == 1, rank == 0])
    engine.verifier._forget_proofs()  # as after a sleep
    with pytest.raises(WeightsMismatchError, match=rf"policy 'plan': .*: {name}(, lm_head\.weight)? differ$"):
        await engine.generate(request())
    await engine.load(POLICY, model.state_dict(), 5)
    assert await engine.generate(request(n=1))


async def test_z_a_process_of_a_shard_that_hangs_or_dies_takes_the_others_along_and_all_are_replaced(
    engine: VllmEngine, model: Qwen3ForCausalLM, plain_logprobs: Logprobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last, since it uses up the engine's restarts."""
    monkeypatch.setattr("troupe.rollout.engines.vllm.server.POLL_S", 0.2)
    await engine.load(POLICY, model.state_dict(), 6)
    for restarts, stop in enumerate((signal.SIGSTOP, signal.SIGKILL), 1):
        server = engine.server
        processes = {server.process.pid, *below(server.process.pid)}
        assert len(processes) == 3
        task = asyncio.create_task(engine.generate(request(n=8, max_tokens=200)))
        await until(lambda: engine._answering)
        os.kill(max(processes), stop)
        with monkeypatch.context() as patch:
            patch.setattr(server, "settings", replace(server.settings, stall_s=2.0))
            agree(model, plain_logprobs, await task)
        assert engine.server is not server and engine.supervisor.restarts == restarts
        await until(lambda dead=processes: not any(map(alive, dead)))


async def test_adapters_are_the_learners_in_every_shard(
    build: Build, digits: PreTrainedTokenizerFast, plain_logprobs: Logprobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "EXTENSION", SPOILING)
    peft: PeftModel = adapters.attach(build(), "base", {POLICY: ADAPTER}, {POLICY: 1})
    base = adapters.base_of(peft)
    adapted = Adapted(base, adapters.weights(peft, POLICY), ADAPTER.scale)
    engine = VllmEngine({POLICY: adapted, "base": base}, digits, restarts=0, **SMALL)
    try:
        for version in range(3):
            if version:
                measured = await engine.load(POLICY, move(peft, POLICY, version), version)
                assert 0 <= measured["probe_nats"] < 1e-4
            first, second = await asyncio.gather(*(engine.generate(request(each)) for each in (POLICY, "base")))
            adapters.activate(peft, POLICY)
            agree(peft, plain_logprobs, first)
            with peft.disable_adapter():
                agree(peft, plain_logprobs, second)
        # The first process is the first to be compared, and has B of a layer that is divided by inputs by itself.
        spoilt = ("self_attn.qkv_proj", 1, "self_attn.k_proj", "AB"), ("mlp.down_proj", 0, "mlp.down_proj", "A")
        for version, (layer, part, name, matrices) in enumerate(spoilt, 3):
            await engine.load(POLICY, move(peft, POLICY, version), version)
            await engine.server.call("spoil_adapter", 1, f"model.layers.1.{layer}", part)
            names = ", ".join(rf"\S*\.layers\.1\.{name}\.lora_{matrix}\.weight" for matrix in matrices)
            engine.verifier._forget_proofs()  # as after a sleep
            with pytest.raises(WeightsMismatchError, match=rf"policy '{POLICY}': .*: {names} differ$"):
                await engine.generate(request())
        await engine.load(POLICY, move(peft, POLICY, 5), 5)
        await engine.server.call("lose_adapter", 1)
        engine.verifier._forget_proofs()
        with pytest.raises(WeightsMismatchError, match=rf"policy '{POLICY}': .* are missing in the engine$"):
            await engine.generate(request())
    finally:
        await engine.close()

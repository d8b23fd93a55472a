"""The learner's side of a transfer, as far as it runs without a GPU: what is sent, the client that vLLM's senders call
from a thread, and what of it vLLM's own classes take.
"""

import asyncio
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from troupe.rollout.engines.base import EngineError
from troupe.rollout.engines.vllm import launch, transfer
from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.rollout.engines.vllm.expected import ExpectedWeights
from troupe.rollout.engines.vllm.placement import Placement
from troupe.rollout.engines.vllm.settings import VllmSettings
from troupe.rollout.engines.vllm.transfer import Transfer, WeightSource, check_disk_space, parts, saved_adapter
from troupe.rollout.engines.vllm.versions import is_0_22

from .conftest import DIGITS, Build

WEIGHTS = {"embed.weight": torch.arange(12.0).view(4, 3), "norm.weight": torch.full((3,), 1.0 + 1e-4)}


def source(dtype: torch.dtype = torch.bfloat16, weights: dict[str, Tensor] = WEIGHTS) -> WeightSource:
    return WeightSource(weights.items, {}, dtype)


class Worker:
    """Notes the calls; ``ends`` where the process is gone."""

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends
        self.calls: list[tuple[Any, ...]] = []

    async def call(self, method: str, *arguments: Any) -> None:
        assert threading.current_thread() is threading.main_thread()
        if self.ends:
            raise EngineError("policy 'plan': vLLM's process has ended")
        self.calls.append((method, *arguments))


def client_of(worker: Worker, folder: Path) -> Transfer:
    """As vLLM's senders see it, inside of a transfer."""
    client = Transfer(worker.call, Placement(0, "ipc"), torch.device("cuda:0"), folder)
    client._loop = asyncio.get_running_loop()
    return client


def test_what_is_sent_is_in_the_engines_dtype_and_begins_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = source()
    for _ in range(2):
        tensors = dict(sent)
        assert list(tensors) == list(WEIGHTS)
        assert all(torch.equal(tensors[name], WEIGHTS[name].bfloat16()) for name in WEIGHTS)
    assert [(each.name, each.shape) for each in sent.metadata()] == [("embed.weight", (4, 3)), ("norm.weight", (3,))]
    assert sent.buffer_bytes == 512 << 20
    monkeypatch.setattr(transfer, "PART_BYTES", 16)
    assert sent.buffer_bytes == 24 and source(torch.float32).buffer_bytes == 48


def test_weights_travel_in_parts_that_are_gone_afterwards(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PART_BYTES", 20_000)
    weights, tensors, count, written = build().state_dict(), {}, 0, 0
    sent = ExpectedWeights({"plan": build()}, VllmSettings(dtype="bfloat16"), DIGITS).source
    assert sent.tied == {"lm_head.weight": "model.embed_tokens.weight"}
    del weights["lm_head.weight"]
    for path in parts(sent, tmp_path):
        assert [path] == list(tmp_path.iterdir())
        tensors |= load_file(path)
        count, written = count + 1, written + path.stat().st_size
    assert 0 < written - 2 * sum(tensor.numel() for tensor in weights.values()) < 1000 * count  # headers
    assert count > 2 and not list(tmp_path.iterdir())
    assert {name: tensor.dtype for name, tensor in tensors.items()} == dict.fromkeys(weights, torch.bfloat16)
    assert all(torch.equal(tensors[name], weights[name].bfloat16()) for name in weights)


def test_a_part_without_space_is_an_error_that_says_what_is_needed_and_leaves_nothing(tmp_path: Path) -> None:
    check_disk_space(1000, tmp_path)
    vast = torch.zeros(1).expand(1 << 45)  # no machine has as much, and it takes none
    message = rf"by way of {tmp_path.parent}, which has .* GiB left and would need 1.31e\+05; a container"
    with pytest.raises(OSError, match=message):
        list(parts(source(torch.float32, {"vast": vast}), tmp_path))
    assert not list(tmp_path.iterdir())


def test_an_adapter_travels_as_a_peft_checkpoint_that_is_gone_afterwards(tmp_path: Path) -> None:
    with saved_adapter(tmp_path, 3, WEIGHTS) as path:
        assert path.parent == tmp_path and '"r": 3, "lora_alpha": 3' in (path / "adapter_config.json").read_text()
        tensors = load_file(path / "adapter_model.safetensors")
        assert all(torch.equal(tensors[name], WEIGHTS[name]) for name in WEIGHTS)
    assert not list(tmp_path.iterdir())


async def test_a_client_in_a_thread_asks_in_the_event_loop_and_in_order(tmp_path: Path) -> None:
    worker = Worker()
    client = client_of(worker, tmp_path)

    def helper() -> None:
        client.init_weight_transfer_engine({"packed": True})
        client.start_weight_update()
        client.update_weights({"names": ["a"], "ipc_handles": {"GPU-0": (torch.Tensor, 3)}})
        client.finish_weight_update()

    await asyncio.to_thread(helper)
    prepare, start, (method, sent, handles), finish = worker.calls
    assert prepare == ("init_weight_transfer_engine", {"packed": True})
    assert (start, method, finish) == (("start_weight_update",), "troupe_update_weights", ("finish_weight_update",))
    assert sent == {"names": ["a"]} and pickle.loads(handles) == {"GPU-0": (torch.Tensor, 3)}


async def test_a_process_that_is_gone_is_told_to_who_waits_for_the_other_half(tmp_path: Path) -> None:
    client = client_of(Worker(ends=True), tmp_path)
    calls: list[str] = []
    client._sender = SimpleNamespace(shutdown=lambda: calls.append("lost"))
    with pytest.raises(EngineError, match="'plan': vLLM's process has ended"):
        await asyncio.to_thread(client.update_weights, {})
    assert calls == ["lost"]


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")
async def test_a_process_that_reads_handles_answers_in_plain_types(
    build: Build, digits: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the environment of a GPU's process with ``transfer=ipc``, which has left the learner's before it answers."""

    def on_a_gpu(settings: VllmSettings, placement: Placement | None = None, folder: Path | None = None) -> Any:
        return environment(settings, placement and Placement((0,), "ipc"), folder)

    environment = launch.environment
    monkeypatch.setattr(launch, "environment", on_a_gpu)
    monkeypatch.setattr(launch, "EXTENSION", "tests.rollout.engines.vllm.spoiling.ListeningExtension")
    engine = VllmEngine({"plan": build()}, digits, kv_cache_gib=0.05, lockstep=False)
    try:
        assert await engine.load("plan", build(1).state_dict(), 1)
        handles = {"GPU-0": (torch.Tensor, (4, 3), torch.bfloat16, b"handle")}
        info = {"names": ["a"], "dtype_names": ["bfloat16"], "shapes": [[4, 3]], "tensor_sizes": [12]}
        await engine.server.call("listen")
        client = client_of(engine.server, Path())
        await asyncio.to_thread(client.update_weights, info | {"ipc_handles": handles})
        assert await engine.server.call("heard") == [repr(handles)]
    finally:
        await engine.close()


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")
def test_vllms_nccl_helper_finds_in_the_weights_what_was_declared() -> None:
    if is_0_22():
        pytest.skip("vLLM 0.22.1 has no such check")
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerWeightTransferEngine

    sent = source()
    tensors = dict(NCCLTrainerWeightTransferEngine._checked_iter(sent, sent.metadata()))
    assert all(torch.equal(tensors[name], WEIGHTS[name].bfloat16()) for name in WEIGHTS)
    with pytest.raises(ValueError, match="disagrees"):
        list(NCCLTrainerWeightTransferEngine._checked_iter(source(torch.float32), sent.metadata()))

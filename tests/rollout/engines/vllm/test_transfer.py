"""The learner's side of a weight transfer, as far as it runs without a GPU: what is sent, the client that vLLM's
helpers call from a thread, and what of it vLLM's own classes take.
"""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from troupe.rollout.engines.base import EngineError
from troupe.rollout.engines.vllm import senders
from troupe.rollout.engines.vllm.senders import Client, Load, portable

WEIGHTS = {"embed.weight": torch.arange(12.0).view(4, 3), "norm.weight": torch.full((3,), 1.0 + 1e-4)}


def load(dtype: torch.dtype = torch.bfloat16) -> Load:
    def weights() -> Iterator[tuple[str, Tensor]]:
        return iter(WEIGHTS.items())

    return Load(weights, {}, dtype)


class Line:
    """Notes what is asked of it and in which thread; ``ends`` where the process is gone."""

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends
        self.asked: list[Any] = []

    async def prepare(self, info: dict[str, Any]) -> None:
        self._note("prepare", info)

    async def begin(self) -> None:
        self._note("begin")

    async def receive(self, info: dict[str, Any]) -> None:
        if self.ends:
            raise EngineError("policy 'plan': vLLM's process has ended")
        self._note("receive", info)

    async def finish(self) -> None:
        self._note("finish")

    def _note(self, *what: Any) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.asked.append(what)


def test_what_is_sent_is_in_the_engines_dtype_and_begins_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given = load()
    for _ in range(2):
        found = dict(given)
        assert list(found) == list(WEIGHTS)
        assert all(torch.equal(found[name], WEIGHTS[name].bfloat16()) for name in WEIGHTS)
    assert given.shapes == [("embed.weight", (4, 3)), ("norm.weight", (3,))]
    assert given.buffer_bytes == 512 << 20
    monkeypatch.setattr(senders, "PART_BYTES", 16)
    assert given.buffer_bytes == 24 and load(torch.float32).buffer_bytes == 48


async def test_a_client_in_a_thread_asks_in_the_event_loop_and_in_order() -> None:
    line = Line()
    client = Client(line, asyncio.get_running_loop())

    def helper() -> None:
        client.init_weight_transfer_engine({"packed": True})
        client.start_weight_update()
        client.update_weights({"names": ["a"], "ipc_handles": {"GPU-0": (torch.Tensor, 3)}})
        client.finish_weight_update()

    await asyncio.to_thread(helper)
    assert [what[0] for what in line.asked] == ["prepare", "begin", "receive", "finish"]
    assert line.asked[0] == ("prepare", {"packed": True})
    sent = line.asked[2][1]
    assert sent["names"] == ["a"] and isinstance(sent["ipc_handles_pickled"], str) and "ipc_handles" not in sent


async def test_a_process_that_is_gone_is_told_to_who_waits_for_the_other_half() -> None:
    client = Client(Line(ends=True), asyncio.get_running_loop())
    told: list[str] = []
    client.lost = lambda: told.append("lost")
    with pytest.raises(EngineError, match="'plan': vLLM's process has ended"):
        await asyncio.to_thread(client.update_weights, {})
    assert told == ["lost"]


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")
def test_vllm_reads_handles_as_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process that receives, whose environment allows it."""
    from troupe.rollout.engines.vllm import compat

    if not compat.NEW:
        pytest.importorskip("ray", reason="vLLM 0.22.1 imports it for ipc")
    from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine

    monkeypatch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
    handles = {"GPU-0": (torch.Tensor, (4, 3), torch.bfloat16, b"handle")}
    told = {"names": ["a"], "dtype_names": ["bfloat16"], "shapes": [[4, 3]], "tensor_sizes": [24]}
    receiver = IPCWeightTransferEngine.__new__(IPCWeightTransferEngine)  # its set-up needs a model on a GPU
    sent = portable(told | {"ipc_handles": handles})
    assert receiver.parse_update_info(sent).ipc_handles == handles


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")
def test_vllms_nccl_helper_finds_in_the_weights_what_was_declared() -> None:
    from troupe.rollout.engines.vllm import compat

    if not compat.NEW:
        pytest.skip("vLLM 0.22.1 has no such check")
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerWeightTransferEngine

    source = compat.source(load())
    found = dict(NCCLTrainerWeightTransferEngine._checked_iter(source, source.metadata()))
    assert all(torch.equal(found[name], WEIGHTS[name].bfloat16()) for name in WEIGHTS)
    with pytest.raises(ValueError, match="disagrees"):
        list(NCCLTrainerWeightTransferEngine._checked_iter(load(torch.float32), source.metadata()))

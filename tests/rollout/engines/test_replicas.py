"""Several engines in the place of one: which of them is asked, and what all of them are told."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from troupe.experience import Completion, Request, Sampling
from troupe.models.bases.loading import load_model
from troupe.rollout.engines.base import Counting, Engine, EngineClosedError, EngineError
from troupe.rollout.engines.lockstep import hold, rounds
from troupe.rollout.engines.lora import Adapted
from troupe.rollout.engines.replicas import REMEMBERED, Replicas, shells
from troupe.rollout.engines.weights import assign_strictly


class Noting:
    """Notes what it is asked, and answers once it is ``released``."""

    def __init__(self, lockstep: bool = False) -> None:
        self.lockstep, self.calls = lockstep, list[object]()
        self.arrived: list[tuple[Request, asyncio.Future[list[Completion]]]] = []
        self.released, self.error = asyncio.Event(), None
        self.released.set()

    async def generate(self, request: Request) -> list[Completion]:
        self.calls.append(request.key)
        if not self.lockstep:
            await self.released.wait()
            return []
        answer: asyncio.Future[list[Completion]] = asyncio.get_running_loop().create_future()
        self.arrived.append((request, answer))
        rounds().join(self)
        return await answer

    async def serve_round(self) -> None:
        arrived, self.arrived = self.arrived, []
        self.calls.append(f"round of {len(arrived)}")
        for _, answer in arrived:
            answer.set_result([])

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.calls.append((policy, version))
        return {"probe_nats": float(len(self.calls))}

    async def sleep(self) -> None:
        self.calls.append("sleep")

    async def wake(self) -> Mapping[str, float]:
        self.calls.append("wake")
        return {}

    async def close(self) -> None:
        self.calls.append("close")

    def drain(self) -> Mapping[str, float]:
        return {"faults/engine": 1.0}


def request(*key: int | str, n: int = 4) -> Request:
    return Request("plan", (1, 2), n, Sampling(), 0, key)


async def asked(replicas: Replicas, *requests: Request) -> list[asyncio.Task[list[Completion]]]:
    tasks = [asyncio.create_task(replicas.generate(each)) for each in requests]
    await asyncio.sleep(0)
    return tasks


async def test_requests_of_a_task_go_to_one_engine_and_tasks_to_the_least_busy() -> None:
    engines = [Noting(), Noting()]
    replicas = Replicas(engines, lockstep=False)
    assert isinstance(replicas, Engine) and isinstance(replicas, Counting)
    for engine in engines:
        engine.released.clear()
    tasks = await asked(replicas, *(request(f"board {index}", 0, "plan") for index in range(4)))
    for engine in engines:
        engine.released.set()
    await asyncio.gather(*tasks)
    for turn in (1, 2):
        await asyncio.gather(*(replicas.generate(request(f"board {index}", turn, "plan")) for index in (3, 0, 2, 1)))
    assert [{key[0] for key in engine.calls} for engine in engines] == [{"board 0", "board 2"}, {"board 1", "board 3"}]  # type: ignore[index]


async def test_after_forget_and_after_new_weights_no_request_of_before_matters() -> None:
    engines = [Noting(), Noting()]
    replicas = Replicas(engines, lockstep=False)
    for one, two, forget in (("a", "b", replicas.forget), ("c", "d", partial(replicas.load, "plan", {}, 1))):
        engines[0].released.clear()
        tasks = await asked(replicas, request(one), request(two))
        engines[0].released.set()
        await asyncio.gather(*tasks)
        await replicas.generate(request(two))
        assert [engine.calls[-1] for engine in engines] == [(one,), (two,)]
        await forget()
        await replicas.generate(request(two))
        assert engines[0].calls[-1] == (two,)


async def test_tasks_without_end_take_bounded_memory() -> None:
    """As those of a gateway do, whose weights are never new."""
    replicas = Replicas([Noting(), Noting()], lockstep=False)
    for index in range(REMEMBERED + 2):
        await replicas.generate(request("board 0"))
        await replicas.generate(request(f"board {index}"))
    assert len(replicas._places) == REMEMBERED and ("board 0",) in replicas._places


async def test_a_task_leaves_an_engine_that_is_far_busier_than_another() -> None:
    engines = [Noting(), Noting()]
    replicas = Replicas(engines, lockstep=False)
    for engine in engines:
        engine.released.clear()
    # 4 completions at a time, all of one task.  The third request would make 12 there, where it makes 4 elsewhere; the
    # ninth 28, and 12.
    tasks = await asked(replicas, *(request("board", turn, "plan") for turn in range(9)))
    turns = [[key[1] for key in engine.calls] for engine in engines]  # type: ignore[index]
    assert turns == [[0, 1, 8], [2, 3, 4, 5, 6, 7]]
    for engine in engines:
        engine.released.set()
    await asyncio.gather(*tasks)
    assert replicas._under_way == [0, 0]


async def test_a_caller_that_goes_away_counts_no_longer() -> None:
    engines = [Noting(), Noting()]
    for lockstep in (False, True):
        replicas = Replicas(engines, lockstep)
        engines[0].released.clear()
        [task] = await asked(replicas, request("board", 0))
        if lockstep:
            await rounds_over()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert replicas._under_way == [0, 0]


async def rounds_over() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.mark.parametrize("shuffle", [1, 2, 3])
async def test_in_lockstep_the_order_of_arrival_does_not_matter(shuffle: int) -> None:
    async def play(order: Sequence[Request]) -> list[object]:
        engines = [Noting(lockstep=True), Noting(lockstep=True)]
        replicas = Replicas(engines, lockstep=True)
        await asyncio.gather(*map(replicas.generate, order))
        assert all(engine.calls[-1] == f"round of {len(engine.calls) - 1}" for engine in engines)  # one round
        return [sorted(map(str, engine.calls)) for engine in engines]

    requests = [request(f"board {index}", 0, n=1 + index % 3) for index in range(9)]
    assert await play(requests) == await play(Random(shuffle).sample(requests, 9))
    with hold(), pytest.raises(RuntimeError, match="inside hold"):
        await Replicas([Noting(lockstep=True)], lockstep=True).generate(request("board"))


async def test_weights_go_to_all_also_where_one_fails() -> None:
    engines = [Noting(), Noting(), Noting()]
    engines[1].calls.append("something")
    replicas = Replicas(engines, lockstep=False)
    assert await replicas.load("plan", {}, 3) == {"probe_nats": 2.0}  # the largest
    assert all(engine.calls[-1] == ("plan", 3) for engine in engines)
    engines[0].error = EngineError("not proven")  # type: ignore[assignment]
    with pytest.raises(EngineError, match="not proven"):
        await replicas.load("plan", {}, 4)
    assert [engine.calls[-1] for engine in engines] == [("plan", 3), ("plan", 4), ("plan", 4)]
    await replicas.sleep()
    await replicas.wake()
    assert replicas.drain() == {"faults/engine": 3.0}
    await replicas.close()
    assert all(engine.calls[-3:] == ["sleep", "wake", "close"] for engine in engines)
    with pytest.raises(EngineClosedError):
        await replicas.generate(request("board"))


def test_a_replica_has_the_tensors_in_modules_of_its_own() -> None:
    model = load_model("laptop")
    models: dict[str, PreTrainedModel | Adapted] = {"base": model, "plan": Adapted(model, {}, 1.0)}
    other = shells(models)
    plan = other["plan"]
    assert isinstance(plan, Adapted) and plan.model is other["base"] is not model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name, tensor in plan.model.state_dict().items():
        assert tensor.data_ptr() == model.state_dict()[name].data_ptr()
    assign_strictly("base", plan.model, {name: tensor + 1 for name, tensor in before.items()})
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())

"""A team: which policies learn, in which pools, and the weights of its engines."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from troupe.cluster.actors import StoredWeights
from troupe.experience import Sampling
from troupe.models.learning.settings import Alternation, Schedule
from troupe.models.pools import team as module
from troupe.models.pools.team import Team
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.policy_client import PolicyClient


class FakePool:
    """A backbone with one or several policies; notes what it learns, and in ``events`` when."""

    def __init__(self, events: list[str] | None = None) -> None:
        self.learnt: list[Mapping[str, Any]] = []
        self.events = [] if events is None else events

    async def close(self) -> None:
        pass

    async def update(self, batches: Mapping[str, Any], by_agent: bool) -> dict[str, dict[str, float]]:
        self.events.append(f"begin {' '.join(batches)}")
        await asyncio.sleep(0)
        self.events.append(f"end {' '.join(batches)}")
        self.learnt.append(batches)
        return {name: {"samples": float(len(groups))} for name, groups in batches.items()}


class FakePolicy:
    def __init__(self, name: str, pool: FakePool, version: int = 3) -> None:
        self.name, self.pool, self.version = name, pool, version

    async def weights(self) -> Mapping[str, torch.Tensor]:
        return {self.name: torch.zeros(1)}


class FakeEngine:
    """Notes its calls; measures as many nats as it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def load(self, policy: str, weights: Mapping[str, torch.Tensor], version: int) -> Mapping[str, float]:
        self.calls.append(("load", policy, *weights, version))
        return {"probe_nats": float(len(self.calls))}

    async def sleep(self) -> None:
        self.calls.append(("sleep",))

    async def wake(self) -> Mapping[str, float]:
        self.calls.append(("wake",))
        return {"woken": 1.0}

    async def close(self) -> None:
        self.calls.append(("close",))


def build(pools: dict[str, FakePool], engines: dict[str, FakeEngine], **schedules: Schedule) -> Team:
    policies = {name: FakePolicy(name, pool) for name, pool in pools.items()}
    return Team(policies, engines, {}, {}, {}, schedules)  # type: ignore[arg-type]


async def test_policies_of_one_pool_learn_together_and_those_at_rest_do_not() -> None:
    shared, own = FakePool(), FakePool()
    rests = Schedule(alternate=Alternation(every=1, turn=1), turns=2)
    team = build({"a": shared, "b": shared, "c": own, "d": own}, {}, d=rests)
    batches: dict[str, Any] = {"a": [[1], [2]], "b": [[3]], "c": [], "d": [[4]]}
    assert team.learners(0) == ["a", "b", "c"] and team.learners(1) == ["a", "b", "c", "d"]
    metrics = await team.update(batches, 0, in_order=False)
    assert metrics == {"a": {"samples": 2.0}, "b": {"samples": 1.0}}
    assert shared.learnt == [{"a": [[1], [2]], "b": [[3]]}] and own.learnt == []
    await team.update(batches, 1, in_order=True)
    assert own.learnt == [{"d": [[4]]}]


async def test_pools_update_side_by_side_unless_in_order() -> None:
    events: list[str] = []
    team = build({"a": FakePool(events), "b": FakePool(events)}, {})
    batches: dict[str, Any] = {"a": [[1]], "b": [[2]]}
    await team.update(batches, 0, in_order=False)
    assert events == ["begin a", "begin b", "end a", "end b"]
    events.clear()
    await team.update(batches, 0, in_order=True)
    assert events == ["begin a", "end a", "begin b", "end b"]


async def test_an_engine_of_several_policies_loads_each_and_wakes_once() -> None:
    shared, own = FakeEngine(), FakeEngine()
    team = build({"a": FakePool(), "b": FakePool(), "c": FakePool()}, {"a": shared, "b": shared, "c": own})
    await team.sleep()
    metrics = await team.load_weights()
    await team.close()
    assert shared.calls == [("sleep",), ("load", "a", "a", 3), ("load", "b", "b", 3), ("wake",), ("close",)]
    assert own.calls == [("sleep",), ("load", "c", "c", 3), ("wake",), ("close",)]
    assert metrics == {"probe_nats": 3.0, "woken": 1.0}  # the largest


@pytest.mark.parametrize(("coarseness", "rounding"), [(0.0, 0.1), (1.0, 0.5), (1 / 8, 0.1)])
async def test_mismatch_is_counted_in_roundings_of_engine_or_learner(coarseness: float, rounding: float) -> None:
    """Of agents of one policy, at their temperatures; not of a policy whose engine tells no rounding."""

    class Rounding(FakeEngine):
        async def load(self, policy: str, weights: Any, version: int) -> Mapping[str, float]:
            return {"rounding_nats": 0.1, "bfloat16_rounding_nats": 0.5}

    class Measuring(FakePool):
        async def update(self, batches: Mapping[str, Any], by_agent: bool) -> dict[str, dict[str, float]]:
            agents = {"a": ("tool", "plan"), "b": ("judge",)}
            return {name: {f"mismatch/{agent}/k3_nats": 0.02 for agent in agents[name]} for name in batches}

    team = build({"a": (pool := Measuring()), "b": pool}, {"a": Rounding(), "b": FakeEngine()})
    agents = {"tool": ("a", 1.0), "plan": ("a", 0.5), "judge": ("b", 1.0), "script": ("c", 1.0)}
    team.training = {agent: client(policy, temperature) for agent, (policy, temperature) in agents.items()}
    team.coarseness = {"a": coarseness}
    batches: dict[str, Any] = {"a": [[1]], "b": [[2]]}
    assert "mismatch/tool/roundings" not in (await team.update(batches, 0, in_order=False))["a"]  # not loaded yet
    await team.load_weights()
    metrics = await team.update(batches, 0, in_order=False)
    assert metrics["a"]["mismatch/tool/roundings"] == pytest.approx(0.2 / rounding)
    assert metrics["a"]["mismatch/plan/roundings"] == pytest.approx(0.1 / rounding)
    assert metrics["b"].keys() == {"mismatch/judge/k3_nats"}


def client(policy: str, temperature: float) -> PolicyClient:
    return PolicyClient(policy, FakeEngine(), ChatCodec(), 8, Sampling(temperature=temperature))  # type: ignore[arg-type]


async def test_engines_that_keep_prefixes_forget_them_once() -> None:
    class Keeping(FakeEngine):
        async def forget(self) -> None:
            self.calls.append(("forget",))

    keeping, other = Keeping(), FakeEngine()
    await build({"a": FakePool(), "b": FakePool()}, {"a": keeping, "b": keeping, "c": other}).forget()
    assert (keeping.calls, other.calls) == ([("forget",)], [])


async def test_an_engine_that_goes_on_gets_copies_but_of_stored_weights_which_stay_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, stored = {"a": torch.zeros(1)}, StoredWeights(reference=None)  # to read these would raise
    given: dict[str, Any] = {}

    async def weights(self: FakePolicy) -> Any:
        return {"a": own, "b": stored}[self.name]

    async def load(self: FakeEngine, policy: str, weights: Any, version: int) -> dict[str, float]:
        given[policy] = weights
        return {}

    monkeypatch.setattr(FakePolicy, "weights", weights)
    monkeypatch.setattr(FakeEngine, "load", load)
    engine = FakeEngine()
    await build({"a": FakePool(), "b": FakePool()}, {"a": engine, "b": engine}).load_weights(copies=True)
    assert given["b"] is stored and given["a"]["a"] is not own["a"]


async def test_a_checkpoint_is_loaded_by_policy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "checkpoint_weights", lambda folder: {str(folder): torch.zeros(1)})
    engine = FakeEngine()
    await build({"a": FakePool()}, {"a": engine}).load_checkpoint(tmp_path)
    assert engine.calls == [("load", "a", str(tmp_path / "a"), 3)]

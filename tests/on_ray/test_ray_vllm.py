"""vLLM in actors of Ray: a run there is the local one, its server ends with its actor, and another takes its place.

``make test-vllm-ray`` installs vLLM for a CPU and Ray, and runs this.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from troupe.api.training import train
from troupe.experience import Request
from troupe.loop import TrainLoop
from troupe.rollout.engines.vllm.digest import WeightsMismatchError

from ..processes import alive, until
from .helpers import Sampled, assert_same, difference, kill_after, node_of, processes, rows

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]

VLLM = "engine=vllm", "engine.kv_cache_gib=0.1", "regime=shared", "strategy.precision=32-true", "loop.iterations=3"
SERVER, SHARD = "VLLM", "VLLM::Worker_TP"
"""As vLLM names its processes, and those that have a shard of a model each."""


def folders() -> set[Path]:
    """Those of servers in this machine."""
    return set(Path("/dev/shm").glob("troupe-vllm-*"))


def kill_within(loop: TrainLoop, engine: Any, iteration: int, kill: Callable[[], object]) -> None:
    """Call ``kill`` once, while the actor of ``engine`` has requests of ``iteration``."""
    inner, killed = engine._serve, list[bool]()

    async def serve(requests: Sequence[Request]) -> Any:
        serving = asyncio.ensure_future(inner(requests))
        if loop.progress.iteration == iteration and not killed:
            killed.append(True)
            await asyncio.sleep(0)  # they are sent
            kill()
        return await serving

    engine._serve = serve


def proven(metrics: Sequence[dict[str, Any]], policies: Sequence[str] = ("shared",)) -> bool:
    """Whether the engine had the learner's weights in each iteration, as far as rounding of float32 goes."""
    return all(
        0 < row["rollout/probe_nats"] < 1e-4 and abs(row[f"train/{policy}/behaviour_kl_nats"]) < 1e-6
        for row in metrics
        for policy in policies
    )


def test_a_run_on_ray_is_the_local_one_also_where_the_node_of_vllm_is_killed(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop], sampled: Sampled
) -> None:
    before = folders()
    train(built(*VLLM, f"run_dir={tmp_path / 'one'}"))
    assert folders() <= before  # other runs may have ended meanwhile
    loop = built(*VLLM, f"run_dir={tmp_path / 'two'}", nodes=3)  # a pool, an engine, one to spare
    engine: Any = loop.team.engines["shared"]
    victim = node_of(cluster, engine.actor.group)
    [first], left = processes(victim, SERVER), folders()
    kill_within(loop, engine, 1, lambda: cluster.remove_node(victim, allow_graceful=False))
    servers: list[int] = []
    kill_after(loop, 2, lambda: servers.extend(processes(node_of(cluster, engine.actor.group), SERVER)))
    summary = train(loop)
    assert engine.actor.restarts == 1 and summary["faults/engine_restarts"] == 1 and summary["faults/engine"] == 0
    assert summary["iterations"] == loop.progress.iteration == 3  # the same loop
    [second] = servers
    asyncio.run(until(lambda: not alive(first) and not alive(second)))
    assert folders() <= left  # what was killed could not tidy up; the other has
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert proven(one) and proven(two)
    # Bit for bit, in lockstep: the requests of the round that was lost are a round of the next server, whose cache of
    # prefixes is as empty as the lost one's was after its weights came.
    assert_same(sampled, 3)
    assert difference(tmp_path / "one", tmp_path / "two", ["shared"]) == 0


def test_weights_that_are_not_proven_stop_the_run_and_leave_no_server(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop]
) -> None:
    before = folders()
    doubting = "engine._target_=tests.on_ray.doubting.DoubtingEngine"
    loop = built(*VLLM, doubting, f"run_dir={tmp_path / 'run'}", nodes=2)
    engine: Any = loop.team.engines["shared"]
    [server] = processes(node_of(cluster, engine.actor.group), SERVER)
    with pytest.raises(WeightsMismatchError, match="policy 'shared', version 0: log-probabilities of engine and"):
        train(loop)
    asyncio.run(until(lambda: not alive(server)))
    assert folders() <= before


def test_tasks_go_on_during_updates_and_the_node_of_vllm_is_killed(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop]
) -> None:
    """No task is lost."""
    ahead = "loop.staleness=1", "loop.lockstep=false", "algorithm.objective.importance_cap=2", "execution.worlds=1"
    loop = built(*VLLM, *ahead, f"run_dir={tmp_path / 'run'}", nodes=4)  # one to spare
    engine: Any = loop.team.engines["shared"]
    victim = node_of(cluster, engine.actor.group)
    [server] = processes(victim, SERVER)
    kill_after(loop, 1, lambda: cluster.remove_node(victim, allow_graceful=False))
    summary = train(loop)
    assert engine.actor.restarts == 1 and summary["faults/engine_restarts"] == 1
    assert summary["status"] == "finished" and summary["rollout/unused_tasks"] == 0
    assert not alive(server)
    metrics = rows(tmp_path / "run")
    assert [(row["rollout/tasks"], row["rollout/tasks_ahead"]) for row in metrics] == [(3, 3), (3, 3), (3, 0)]
    assert all(0 < row["rollout/probe_nats"] < 1e-4 for row in metrics)
    ages = [row["train/shared/staleness_max"] for row in metrics]
    assert ages[0] == 0 and max(ages) == 1


def test_two_engines_of_a_pool_are_those_of_a_local_run_also_where_the_node_of_one_is_killed(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop], sampled: Sampled
) -> None:
    words = *VLLM, "loop.iterations=2", "engine.data_parallel=2"
    train(built(*words, f"run_dir={tmp_path / 'one'}"))
    loop = built(*words, f"run_dir={tmp_path / 'two'}", nodes=4)  # a pool, two engines, one to spare
    replicas: Any = loop.team.engines["shared"]
    first, second = replicas.engines
    nodes = [node_of(cluster, each.actor.group) for each in (first, second)]
    assert nodes[0] is not nodes[1]
    kill_within(loop, second, 1, lambda: cluster.remove_node(nodes[1], allow_graceful=False))
    summary = train(loop)
    assert (first.actor.restarts, second.actor.restarts) == (0, 1) and summary["faults/engine_restarts"] == 1
    assert summary["iterations"] == loop.progress.iteration == 2  # the same loop
    assert proven(rows(tmp_path / "one")) and proven(rows(tmp_path / "two"))
    assert_same(sampled, 2)
    assert difference(tmp_path / "one", tmp_path / "two", ["shared"]) == 0


def test_two_shards_of_a_model_with_adapters_are_those_of_a_local_run_also_where_their_node_is_killed(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop], sampled: Sampled
) -> None:
    policies = "tool", "plan"
    words = *VLLM, "regime=lora", "loop.iterations=2", "engine.tensor_parallel=2"
    train(built(*words, f"run_dir={tmp_path / 'one'}"))
    on_ray = *words, "execution.resources.engine.cpus=2", f"run_dir={tmp_path / 'two'}"
    loop = built(*on_ray, nodes=3, cpus=2)  # a pool, an engine, one to spare
    [engine] = {id(each): each for each in loop.team.engines.values()}.values()  # of the base that both policies share
    actor: Any = engine
    victim = node_of(cluster, actor.actor.group)
    shards = processes(victim, SHARD)
    assert len(shards) == 2
    kill_within(loop, actor, 1, lambda: cluster.remove_node(victim, allow_graceful=False))
    summary = train(loop)
    assert actor.actor.restarts == 1 and summary["faults/engine_restarts"] == 1
    assert summary["iterations"] == loop.progress.iteration == 2  # the same loop
    asyncio.run(until(lambda: not any(map(alive, shards))))
    assert proven(rows(tmp_path / "one"), policies) and proven(rows(tmp_path / "two"), policies)
    assert_same(sampled, 2)
    assert difference(tmp_path / "one", tmp_path / "two", policies) == 0

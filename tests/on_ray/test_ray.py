"""Runs on the nodes of a Ray cluster in this machine train what one process trains, also where a node is killed.

``make test-ray`` installs Ray and runs this.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from troupe.api.training import train
from troupe.cluster.actors import ActorGroup, ClusterError, LostActorError
from troupe.cluster.execution import Execution, ResourceMap, Resources
from troupe.loop import TrainLoop
from troupe.models.learning.critic import ValueSample
from troupe.models.learning.ranks import Ranks
from troupe.models.pools.processes import RayProcesses
from troupe.models.pools.proxies import CriticProxy, PoolProxy, update
from troupe.rollout.engines.vllm.launch import environment
from troupe.rollout.engines.vllm.placement import Placement
from troupe.rollout.engines.vllm.settings import VllmSettings
from troupe.runs.run import RunReader
from troupe.setup.parts import parts_of
from troupe.setup.team import build_critics

from ..processes import alive, below, command, fork_server, until
from .helpers import SMALL, Sampled, assert_same, difference, kill_after, node_of, processes, rows

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


def test_a_pools_node_is_killed_and_the_run_ends_as_if_it_were_there(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop], sampled: Sampled
) -> None:
    train(built("loop.iterations=3", f"run_dir={tmp_path / 'one'}"))
    loop = built("loop.iterations=3", f"run_dir={tmp_path / 'two'}", nodes=5)  # two pools, two engines, one to spare
    pools: list[Any] = [loop.team.policies[name].pool for name in ("tool", "plan")]
    engines: list[Any] = list(loop.team.engines.values())
    assert isinstance(pools[1], PoolProxy)
    groups = [*(pool.processes.group for pool in pools), *(engine.actor.group for engine in engines)]
    assert len({node_of(cluster, group).node_id for group in groups}) == 4
    victim = node_of(cluster, pools[1].processes.group)
    kill_after(loop, 2, lambda: cluster.remove_node(victim, allow_graceful=False))
    train(loop)
    assert loop.progress.iteration == 2 and RunReader(tmp_path / "two").status == "finished"  # another loop went on
    assert_same(sampled, 3)
    assert difference(tmp_path / "one", tmp_path / "two") == 0


def test_nodes_of_an_engine_and_of_worlds_are_killed_and_the_iteration_goes_on(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop], sampled: Sampled
) -> None:
    free = "loop.lockstep=false", "loop.iterations=3"
    train(built(*free, f"run_dir={tmp_path / 'one'}"))
    loop = built(*free, "execution.worlds=2", f"run_dir={tmp_path / 'two'}", nodes=8)
    engine: Any = loop.team.engines["tool"]
    worlds: Any = loop.sampler
    victims = [node_of(cluster, group) for group in (engine.actor.group, worlds.actors[0].group)]
    kill_after(loop, 1, lambda: [cluster.remove_node(victim, allow_graceful=False) for victim in victims])
    summary = train(loop)
    assert engine.actor.restarts == 1 and worlds.actors[0].restarts == 1 and worlds.actors[1].restarts == 0
    assert summary["faults/engine_restarts"] == 1 and loop.progress.iteration == 3  # the same loop
    assert_same(sampled, 3)
    assert difference(tmp_path / "one", tmp_path / "two") < 1e-9


def test_programs_run_beside_an_actor_of_worlds_and_none_is_left(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop], sampled: Sampled
) -> None:
    free = "loop.lockstep=false", "loop.iterations=2"
    train(built(*free, f"run_dir={tmp_path / 'one'}", experiment="code_specialized"))
    loop = built(
        *free, "execution.worlds=1", f"run_dir={tmp_path / 'two'}", nodes=5, experiment="code_specialized"
    )  # two pools, two engines, the worlds
    worlds: Any = loop.sampler
    node, workers = node_of(cluster, worlds.actors[0].group), list[int]()
    kill_after(loop, 1, lambda: workers.extend(processes(node, "guest.zygote")))  # which kills nothing
    train(loop)
    assert workers and worlds.actors[0].restarts == 0
    asyncio.run(until(lambda: not any(map(alive, workers))))
    assert not [pid for pid in below(os.getpid()) if fork_server(pid)]  # of evaluations, which the run itself plays
    assert not processes(node, "guest.zygote")
    assert_same(sampled, 2)
    assert difference(tmp_path / "one", tmp_path / "two", list(loop.team.policies)) < 1e-9


def test_a_workflow_is_played_by_an_actor_of_worlds(
    tmp_path: Path, built: Callable[..., TrainLoop], sampled: Sampled
) -> None:
    """Its server is beside the world, and its program is imported there from this repository."""
    searched = f"hydra.searchpath=[file://{Path(__file__).parent / 'configs'}]"
    words = searched, "env=signalling_program", "algorithm=mas_grpo", "algorithm.sampler.k=3"
    run = *words, "~algorithm.reward", "loop.lockstep=false", "loop.iterations=2"
    experiment = "signalling_specialized"
    train(built(*run, f"run_dir={tmp_path / 'one'}", experiment=experiment))
    loop = built(*run, "execution.worlds=1", f"run_dir={tmp_path / 'two'}", nodes=5, experiment=experiment)
    train(loop)
    worlds: Any = loop.sampler
    assert worlds.actors[0].restarts == 0
    for row in rows(tmp_path / "two"):
        assert row["rollout/tasks"] == 3 and row["rollout/lost_episodes"] == 0
        assert all(row[f"rollout/{agent}/refused_requests"] == 0 for agent in ("sender", "receiver"))
    assert_same(sampled, 2)
    assert difference(tmp_path / "one", tmp_path / "two", ["sender", "receiver"]) < 1e-9


def test_two_pools_of_two_processes_train_what_one_process_trains(
    tmp_path: Path, built: Callable[..., TrainLoop], sampled: Sampled
) -> None:
    train(built("loop.iterations=2", f"run_dir={tmp_path / 'one'}"))
    own = "strategy=fsdp2", "strategy.devices=2", "+policies.tool.strategy=ddp", "strategy.gradient_checkpointing=false"
    train(built(*own, "loop.iterations=2", f"run_dir={tmp_path / 'two'}", nodes=6))
    assert len(list((tmp_path / "two" / "checkpoints" / "last" / "plan").glob("training_*"))) == 2
    assert_same(sampled, 2)
    assert 0 < difference(tmp_path / "one", tmp_path / "two") < 1e-9  # sums over two processes round otherwise


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_the_node_of_one_of_a_pools_processes_is_killed_during_an_update(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop], sampled: Sampled, strategy: str
) -> None:
    words = "regime=shared", "loop.iterations=2", "strategy.gradient_checkpointing=false"
    train(built(*words, f"run_dir={tmp_path / 'one'}"))
    own = f"strategy={strategy}", "strategy.devices=2"
    loop = built(*words, *own, f"run_dir={tmp_path / 'two'}", nodes=4)  # two processes, an engine, one to spare
    pool: Any = loop.team.policies["shared"].pool
    node = node_of(cluster, pool.processes.group, 1)
    [second] = processes(node, "ray::ProcessActor")
    inner, updates = pool.processes._answer, list[float]()

    def answer(by_rank: Any, name: str, *common: Any) -> Any:
        if common != (update,):
            return inner(by_rank, name, *common)
        updates.append(len(updates))
        if len(updates) == 2:
            os.kill(second, signal.SIGSTOP)  # so that the update cannot end
        with ThreadPoolExecutor(1) as thread:
            answering = thread.submit(inner, by_rank, name, *common)
            if len(updates) == 2:
                [first] = processes(node_of(cluster, pool.processes.group), "ray::ProcessActor")
                try:
                    asyncio.run(until(lambda: "ProcessActor.call" in command(first)))  # Ray names a process by its work
                finally:
                    cluster.remove_node(node, allow_graceful=False)
                    with suppress(ProcessLookupError):
                        os.kill(second, signal.SIGKILL)
            return answering.result()

    pool.processes._answer = answer
    train(loop)
    assert len(updates) == 2 and loop.progress.iteration == 1  # another loop went on
    assert RunReader(tmp_path / "two").status == "finished"
    assert_same(sampled, 2)
    assert difference(tmp_path / "one", tmp_path / "two", ["shared"]) < 1e-9


def test_an_actor_sees_the_gpus_that_it_asked_for_and_vllm_there_the_same(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2, num_gpus=2)  # which Ray believes
    execution = Execution("ray", cluster.address)
    groups = [ActorGroup("actor", Seeing, 1, Resources(0.5, gpus), execution) for gpus in (1, 1, 0)]
    seen = [group.ray.get(group.actors[0].gpus.remote()) for group in groups]
    for group in groups:
        group.end()
    cluster.remove_node(node)
    assert sorted(seen) == [("", "0"), ("0", "0"), ("1", "1")]  # of no GPU vLLM is never placed on one


class Seeing:
    """What its process sees, and what vLLM's would see on the first of these."""

    def gpus(self) -> tuple[str, str]:
        with environment(VllmSettings(), Placement((0,), "ipc")):
            inside = os.environ["CUDA_VISIBLE_DEVICES"]
        return os.environ["CUDA_VISIBLE_DEVICES"], inside


def test_critics_learn_in_actors_and_the_node_of_one_is_killed(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop], sampled: Sampled
) -> None:
    words = "algorithm=maac", "loop.iterations=2"
    train(built(*words, f"run_dir={tmp_path / 'one'}"))
    loop = built(*words, f"run_dir={tmp_path / 'two'}", nodes=6)  # two pools, two engines, a critic, one to spare
    critic: Any = loop.team.critics.by_name["team"]
    victim = node_of(cluster, critic.processes.group)
    kill_after(loop, 1, lambda: cluster.remove_node(victim, allow_graceful=False))
    train(loop)
    assert RunReader(tmp_path / "two").status == "finished"
    assert_same(sampled, 2)
    assert difference(tmp_path / "one", tmp_path / "two") == 0
    one, two = (rows(tmp_path / run) for run in ("one", "two"))
    fits = [key for key in one[0] if key.startswith("critic/") and not key.endswith("_s")]
    assert fits and all(mine[key] == other[key] for mine, other in zip(one, two, strict=True) for key in fits)


def test_a_critic_in_an_actor_estimates_and_learns_as_here_and_is_lost_with_its_node(
    composed: Callable[..., Any], cluster: Any
) -> None:
    node, execution = cluster.add_node(num_cpus=1), Execution("ray", cluster.address)
    words = composed(*SMALL, "execution=ray", "algorithm=maac", "run_dir=nowhere")
    parts = parts_of(OmegaConf.to_container(words, resolve=True), None)  # type: ignore[arg-type]
    spec = parts.critics["team"]
    assert spec.place is not None
    common: Any = (parts.credit, spec.place, 0, Ranks(), execution)
    here = build_critics({"team": replace(spec, place=None)}, *common).by_name["team"]
    there = build_critics({"team": spec}, *common).by_name["team"]
    assert isinstance(there, CriticProxy) and there.context == here.context
    inputs = [(5, 6, 7), (8, 9)]
    begin = there.state_dict()
    fits = [critic.update([ValueSample(ids, len(ids) - 2.5, 2) for ids in inputs]) for critic in (here, there)]
    assert fits[0]["grad_norm"] == fits[1]["grad_norm"] > 0
    values = here.evaluate(inputs)
    assert values[0] != values[1] and there.evaluate(inputs) == values
    states = [critic.state_dict()["model"] for critic in (here, there)]
    assert all(torch.equal(weight, states[1][name]) for name, weight in states[0].items())
    there.load_state_dict(begin)
    assert there.evaluate(inputs) == [0, 0]
    with pytest.raises(ValueError, match="do not fit"):
        there.load_state_dict({**begin, "model": {}})
    cluster.remove_node(node, allow_graceful=False)
    with pytest.raises(LostActorError, match="critic team: a process, or its node, has ended"):
        while True:  # a process ends soon after its node
            there.evaluate(inputs)


@pytest.mark.parametrize("in_flight", [False, True])
def test_tasks_go_on_during_updates_and_the_node_of_a_pool_is_killed(
    tmp_path: Path, cluster: Any, built: Callable[..., TrainLoop], caplog: pytest.LogCaptureFixture, in_flight: bool
) -> None:
    """No task is lost.  Pools learn in float64, as they cannot where an engine shares their process."""
    ahead = "loop.staleness=1", "loop.lockstep=false", "algorithm.objective.importance_cap=2", "execution.worlds=1"
    run = "regime=shared", *ahead, f"loop.in_flight={in_flight}", "loop.iterations=3", f"run_dir={tmp_path / 'run'}"
    loop = built(*run, nodes=4)  # one to spare
    pool: Any = loop.team.policies["shared"].pool
    victim = node_of(cluster, pool.processes.group)
    kill_after(loop, 1, lambda: cluster.remove_node(victim, allow_graceful=False))
    summary = train(loop)
    assert loop.progress.iteration == 1 and summary["iterations"] == 3  # another loop went on
    assert summary["status"] == "finished" and summary["rollout/unused_tasks"] == 0
    metrics = rows(tmp_path / "run")
    assert [(row["rollout/tasks"], row["rollout/tasks_ahead"]) for row in metrics] == [(3, 3), (3, 3), (3, 0)]
    ages = [row["train/shared/staleness_max"] for row in metrics]
    assert ages[0] == 0 and max(ages) == 1
    caplog.clear()  # diagnostics may ask the pool while it ends


def test_errors_come_back_and_no_room_is_named(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    small = ResourceMap(pool=Resources(0.5))
    execution = Execution("ray", cluster.address, small, start_s=2)
    with pytest.raises(ZeroDivisionError):
        RayProcesses("pool tool", divide_by_zero, 1, small.pool, execution)
    with pytest.raises(ClusterError, match=r"pool tool: no room for 9 x \{'CPU': 0.5\} within execution.start_s=2"):
        RayProcesses("pool tool", divide_by_zero, 9, small.pool, execution)
    cluster.remove_node(node)


def divide_by_zero() -> Any:
    return torch.ones(1 // 0)

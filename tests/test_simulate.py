"""bench/simulate.py against cases computed by hand."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture(scope="module")
def sim() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    import simulate

    yield simulate
    sys.path.remove(str(BENCH))
    del sys.modules["simulate"]


def seconds(
    sim: ModuleType, *, cost: tuple[float, ...] = (0.1, 0.0, 0.0), engines: int = 1, update: float = 2.0, **more: Any
) -> float:
    """Of the first iteration, of one agent whose completions have 10 tokens after 5."""
    keys = {"tasks": 1, "k": 1, "turns": 1, "stages": ((sim.Speaker("p", 5, 10, 100),),)} | more
    pools = {"p": sim.Pool(sim.Cost(*cost), engines)}
    training = sim.Training(sim.Work(**keys), pools, update_s=update, load_s=0.5)
    result: float = training.run(1, first=0).iteration_s
    return result


def test_an_iteration_is_rollout_update_and_load(sim: ModuleType) -> None:
    assert seconds(sim) == pytest.approx(10 * 0.1 + 2 + 0.5)
    # Reading the prompt: 5 x 0.02.
    assert seconds(sim, cost=(0.1, 0.0, 0.02)) == pytest.approx(0.1 + 1 + 2.5)


def test_completions_share_an_engine(sim: ModuleType) -> None:
    cost = 0.1, 0.05, 0.0
    assert seconds(sim, cost=cost, tasks=2) == pytest.approx(10 * (0.1 + 2 * 0.05) + 2.5)
    assert seconds(sim, cost=cost, tasks=2, engines=2) == pytest.approx(10 * (0.1 + 0.05) + 2.5)
    assert seconds(sim, cost=cost, k=4) == pytest.approx(10 * (0.1 + 4 * 0.05) + 2.5)  # a tree's K of one prompt
    assert seconds(sim, cost=cost, k=4, tree=False) == seconds(sim, cost=cost, k=4)
    # Two at a time, of four: two rounds.
    assert seconds(sim, cost=(*cost, 2), k=4) == pytest.approx(2 * 10 * (0.1 + 2 * 0.05) + 2.5)


def test_one_that_ends_early_leaves_more_for_the_other(sim: ModuleType) -> None:
    short, long = sim.Speaker("p", 0, 10, 100), sim.Speaker("p", 0, 30, 100)
    # 10 tokens of both at 0.2 s, then 20 of one at 0.15 s.
    both = seconds(sim, cost=(0.1, 0.05, 0.0), stages=((short, long),))
    assert both == pytest.approx(10 * 0.2 + 20 * 0.15 + 2.5)


def test_stages_and_turns_follow_each_other_with_the_world_between(sim: ModuleType) -> None:
    one = sim.Speaker("p", 5, 10, 100)
    assert seconds(sim, turns=2, stages=((one,), (one,)), world_s=3.0) == pytest.approx(4 * (1.0 + 3.0) + 2.5)


def test_prompts_are_read_one_after_the_other_and_longest_bounds_a_completion(sim: ModuleType) -> None:
    assert seconds(sim, cost=(0.1, 0.0, 0.02), tasks=3) == pytest.approx(3 * 0.1 + 1 + 2.5)
    assert seconds(sim, stages=((sim.Speaker("p", 0, 10, 4),),)) == pytest.approx(0.4 + 2.5)


def stale(sim: ModuleType, staleness: int, rollout: float, update: float, load: float = 0.0) -> Any:
    work = sim.Work(1, 1, 1, ((sim.Speaker("p", 0, 1, 1),),))
    pools = {"p": sim.Pool(sim.Cost(rollout, 0.0, 0.0), 1)}
    return sim.Training(work, pools, update_s=update, load_s=load, staleness=staleness).run(6, first=2)


def test_staleness_hides_the_shorter_phase(sim: ModuleType) -> None:
    assert stale(sim, 0, rollout=1, update=2) == (3.0, 0.0, 0)
    # The learner never waits, and each task ends while the one before it is learnt from.
    assert stale(sim, 1, rollout=1, update=2) == (2.0, 1.0, 1)
    # An update ends within the completion of the next task, and its load waits for that: every 4 s.
    assert stale(sim, 1, rollout=4, update=1) == (4.0, 1.0, 1)
    assert stale(sim, 1, rollout=4, update=1, load=0.5).iteration_s == pytest.approx(4.5)


def test_the_last_iteration_leaves_nothing_under_way(sim: ModuleType) -> None:
    work = sim.Work(2, 1, 1, ((sim.Speaker("p", 0, 1, 1),),))
    pools = {"p": sim.Pool(sim.Cost(1.0, 0.0, 0.0), 1)}
    training = sim.Training(work, pools, update_s=2.0, load_s=0.0, staleness=1, last=3)
    training.run(3, first=0)
    assert training.started == 3 * 2 and not training.going.total() and not training.ended.total()


def test_a_load_stops_the_engines_meanwhile(sim: ModuleType) -> None:
    # Learner-bound: update and load, one after the other.
    assert stale(sim, 1, rollout=0.5, update=2, load=1).iteration_s == pytest.approx(3.0)


def test_a_load_waits_for_the_longest_row(sim: ModuleType) -> None:
    events, times = sim.Events(), {}

    def stop(name: str) -> Callable[[], None]:
        return lambda: times.update({name: events.now})

    engine = sim.Engine(sim.Cost(0.1, 0.0, 0.02), events)
    engine.submit(sim.Request(0, [10, 30], stop("longest")))
    engine.drain(stop("drained"))
    events.after(1.5, lambda: engine.submit(sim.Request(5, [10], stop("waited"))))
    events.after(5.0, engine.resume)
    while "waited" not in times:
        events.next()
    # What waits is neither read nor decoded before the engine goes on at 5 s.
    assert times == pytest.approx({"longest": 3.0, "drained": 3.0, "waited": 5.0 + 5 * 0.02 + 1.0})


def test_pools_load_one_after_the_other(sim: ModuleType) -> None:
    long, short = sim.Speaker("p", 0, 30, 30), sim.Speaker("q", 0, 10, 10)
    pools = {name: sim.Pool(sim.Cost(0.1, 0.0, 0.0), 1) for name in "pq"}
    training = sim.Training(sim.Work(1, 1, 1, ((long, short),)), pools, update_s=0.5, load_s=0.25, staleness=1)
    # From one version to the next: the new task's message at p, the load of p, that of q.
    assert training.run(6, first=2).iteration_s == pytest.approx(3.0 + 2 * 0.25)


@pytest.mark.parametrize("staleness", [1, 2, 4])
def test_no_lag_is_above_the_bound(sim: ModuleType, staleness: int) -> None:
    """Worlds so slow at times that tasks would be overtaken for ever."""
    speaker = sim.Speaker("p", 0, 10, 40, spread=0.8)
    work = sim.Work(4, 1, 2, ((speaker,),), world_s=10.0, world_spread=5.0)
    pools = {"p": sim.Pool(sim.Cost(0.1, 0.0, 0.0), 1)}
    result = sim.Training(work, pools, update_s=0.5, load_s=0.1, staleness=staleness).run(200, first=10)
    assert result.oldest == staleness
    assert result.staleness == staleness  # the mean: as many tasks begin as are learnt from


def test_lengths_have_their_mean_and_a_seed(sim: ModuleType) -> None:
    from random import Random

    speaker, rng = sim.Speaker("p", 0, 100, 10**9, spread=0.8), Random(0)
    draws = [speaker.draw(rng) for _ in range(20_000)]
    assert sum(draws) / len(draws) == pytest.approx(100, rel=0.02)
    same = [
        sim.Training(
            sim.Work(4, 2, 2, ((speaker,),)), {"p": sim.Pool(sim.Cost(0.1, 0.01, 0.0), 2)}, update_s=1, load_s=0
        ).run(2)
        for _ in range(2)
    ]
    assert same[0] == same[1]

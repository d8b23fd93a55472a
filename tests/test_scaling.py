"""bench/scaling.py: its arithmetic against cases computed by hand."""

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture(scope="module")
def bench() -> Iterator[SimpleNamespace]:
    sys.path.insert(0, str(BENCH))
    import scaling
    import simulate

    yield SimpleNamespace(scaling=scaling, simulate=simulate)
    sys.path.remove(str(BENCH))
    del sys.modules["scaling"], sys.modules["simulate"]


def test_a_token_costs_reading_the_weights_and_a_row_its_cache(bench: SimpleNamespace) -> None:
    gpu = bench.scaling.Gpu(
        100.0, 1000.0, 20.0, 10.0, memory_share=0.5, decode_share=0.4, prefill_share=0.2, step_s=1.0
    )
    cost = bench.scaling.Model(parameters=50.0, cache_bytes=5.0).cost(gpu, tokens=10.0)
    assert cost.step_s == pytest.approx(2 * 50 / 50 + 1)  # bytes of bfloat16 over bytes per second
    assert cost.row_s == pytest.approx(5 * 10 / 50 + 2 * 50 / 400)
    assert cost.prefill_s == pytest.approx(2 * 50 / 200)


@pytest.fixture
def setting(bench: SimpleNamespace) -> ModuleType:
    speaker = bench.simulate.Speaker("tool", 20, 5, 10)
    work = bench.simulate.Work(tasks=4, k=4, turns=2, stages=((speaker,),))
    made: ModuleType = bench.scaling.Setting("", work, bench.scaling.Model(100.0, 1.0), steps=2)
    return made


@pytest.mark.parametrize(("devices", "nodes"), [(1, 4), (2, 2), (3, 2), (4, 1), (64, 1)])
def test_nodes_of_a_mini_batch_are_divided_and_no_further(
    bench: SimpleNamespace, setting: ModuleType, devices: int, nodes: int
) -> None:
    # 4 tasks x 2 turns: 8 nodes in 2 steps, of 20 + 4 x 5 tokens each; links so fast that gathering is free.
    gpu = bench.scaling.Gpu(memory_bytes=1e30, flops=8000.0, node_bytes=1e30, link_bytes=1e30, train_share=0.5)
    assert bench.scaling.update_s(setting, gpu, devices) == pytest.approx(2 * nodes * 40 * 8 * 100 / 4000)


def test_slow_links_bound_an_update(bench: SimpleNamespace, setting: ModuleType) -> None:
    gpu = bench.scaling.Gpu(memory_bytes=1e30, flops=1e30, node_bytes=400.0, link_bytes=50.0, node=4)
    # Of four devices each gathers three quarters, three times, for its one node: a prompt with its candidates.
    assert bench.scaling.update_s(setting, gpu, 4) == pytest.approx(2 * 3 * 200 * 0.75 / 400)
    assert bench.scaling.update_s(setting, gpu, 1) == pytest.approx(0, abs=1e-9)
    # The fifth is in another node.
    assert bench.scaling.update_s(setting, gpu, 5) == pytest.approx(2 * 3 * 200 * 0.8 / 50)
    loads = [setting.model.load_s(gpu, gpus) for gpus in (4, 5)]
    assert loads == pytest.approx([200 / 400, 200 / 50])


def test_several_seeds_give_a_mean_and_its_range(bench: SimpleNamespace) -> None:
    titles = "MAGRPO"
    (row,) = list(bench.scaling.table(bench.scaling.H100, [8], [1], seeds=3, titles=titles))[2:]
    (setting,) = (each for each in bench.scaling.SETTINGS if titles in each.title)
    seconds, share = bench.scaling.iteration(setting, bench.scaling.H100, 8, 1, seeds=3)
    assert len(set(seconds)) == 3 and seconds[0] == bench.scaling.iteration(setting, bench.scaling.H100, 8, 1)[0][0]
    shown = f"{sum(seconds) / 3:.1f} s ({min(seconds):.1f} to {max(seconds):.1f}, 1.00x, {share:.0%} generate)"
    assert f"| {shown} |" in row


def test_the_world_that_waits_is_that_of_the_measurement(bench: SimpleNamespace) -> None:
    speaker = bench.simulate.Speaker("p", 0, 1, 1)
    work, rng = bench.scaling.Waiting(3, 4, 2, ((speaker,),)), Random(0)
    draws = sorted(work.world(rng) for _ in range(2000))
    assert draws[0] >= 0.5 and draws[-1] == 10.0
    assert draws[1000] == pytest.approx(0.5 * 2 ** (1 / 1.5), rel=0.05)  # Pareto's median


def test_a_fit_finds_the_costs_that_made_the_phases_and_predicts_others(bench: SimpleNamespace) -> None:
    def run(tasks: int) -> object:
        tokens, prompts, steps = 10.0 * tasks, 30.0 * tasks, 20.0
        update = 0.5 + 0.06 * (tokens + prompts)
        rollout = 0.1 * steps + 0.03 * tokens + 0.02 * prompts
        return bench.scaling.Phases(tasks, 1, rollout, update, 0.25, steps, tokens, prompts)

    fit = bench.scaling.Fit.of([run(2), run(4), run(8)])
    assert (fit.cost.step_s, fit.cost.row_s, fit.cost.prefill_s) == pytest.approx((0.1, 0.03, 0.02))
    assert (fit.update_s, fit.token_s, fit.load_s) == pytest.approx((0.5, 0.06, 0.25))
    # 6 tasks of one agent with 10 tokens after 30, on two processes: 3 rows each.
    work = bench.simulate.Work(6, 1, 1, ((bench.simulate.Speaker("p", 30, 10, 10),),))
    rollout = 3 * 30 * 0.02 + 10 * (0.1 + 3 * 0.03)
    assert fit.predict(work, 240.0, 2) == pytest.approx(rollout + 0.5 + 0.06 * 120 + 0.25)


def test_the_phases_of_metrics_are_medians(bench: SimpleNamespace) -> None:
    rows = [
        {
            "time/rollout_s": s,
            "time/update_s": 2 * s,
            "time/load_s": 0.5,
            "rollout/tokens": 8,
            "rollout/prompt_tokens": 9,
        }
        for s in (1.0, 2.0, 30.0)
    ]
    phases = bench.scaling.Phases.of(rows, tasks=1, processes=1, steps=4)
    assert (phases.rollout_s, phases.update_s, phases.iteration_s) == (2.0, 4.0, 6.5)

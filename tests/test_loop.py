"""The training loop from end to end, on the real engine, worlds and base model: small runs of two iterations."""

import asyncio
import csv
import html
import json
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

from troupe.cli import train
from troupe.envs.base import TeamEnv
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Episode, Split, Task
from troupe.loop import TrainLoop
from troupe.models.bases.loading import load_model
from troupe.models.learning.learner import Learner
from troupe.models.learning.optimizer_steps import NonFiniteError
from troupe.models.pools.pool import Pool
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.sampler import OnEpisode
from troupe.rollout.samplers.tree import TreeSampler
from troupe.runs.loggers import scalars
from troupe.runs.progress import Progress
from troupe.runs.run import RunReader

SMALL = [
    "experiment=sokoban_specialized",
    "loop.iterations=2",
    "loop.tasks_per_iteration=3",
    "loop.eval_every=1",
    "loop.validation_tasks=3",
    "loop.test_tasks=3",
    "env.horizon=2",
    "algorithm.sampler.k=4",
]
Build = Callable[..., TrainLoop]
Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def build(composed: Callable[..., DictConfig], tmp_path_factory: pytest.TempPathFactory) -> Build:
    """``build("key=value", ...)``: a small run in a new run directory, not begun."""

    def new(*overrides: str) -> TrainLoop:
        run_dir = tmp_path_factory.mktemp("runs") / "run"
        return train.build(composed(*SMALL, f"run_dir={run_dir}", *overrides))

    return new


class Recorder:
    """A sampler that remembers the tasks and the seed of each iteration."""

    def __init__(self, sampler: TreeSampler) -> None:
        self.sampler = sampler
        self.calls: list[tuple[list[Task], int]] = []

    async def collect(
        self, world: TeamEnv, tasks: list[Task], clients: dict[str, PolicyClient], seed: int, on_episode: OnEpisode
    ) -> list[list[Episode]]:
        self.calls.append((tasks, seed))
        return await self.sampler.collect(world, tasks, clients, seed, on_episode)


@pytest.fixture(scope="module")
def finished(build: Build) -> Iterator[TrainLoop]:
    """A run that has ended by itself; its sampler has recorded what it was asked for."""
    loop = build()
    loop.sampler = Recorder(loop.sampler)
    train.train(loop)
    yield loop


def weights(loop: TrainLoop) -> Weights:
    return {
        f"{name}/{key}": value.clone()
        for name, policy in loop.team.policies.items()
        for key, value in policy.pool.module.model.state_dict().items()
    }


def engine_weights(loop: TrainLoop) -> Weights:
    """Of engines that are still open."""
    return {
        f"{name}/{key}": value.clone()
        for name, engine in loop.team.engines.items()
        for key, value in engine._decoders[name].model.state_dict().items()
    }


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


MISMATCH = ("max_abs_nats", "k3_nats", "ess_ratio")


def rows(loop: TrainLoop) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (loop.directory.path / "metrics.jsonl").read_text().splitlines()]


def summary(loop: TrainLoop) -> dict[str, Any]:
    return json.loads((loop.directory.path / "summary.json").read_text())


def checkpoint(loop: TrainLoop, name: str) -> Weights:
    """A checkpoint's weights, read as a user would read them."""
    found = {}
    for policy in loop.team.policies:
        folder = loop.directory.checkpoints / name / policy
        assert AutoTokenizer.from_pretrained(folder).encode("U D")
        for key, value in AutoModelForCausalLM.from_pretrained(folder).state_dict().items():
            found[f"{policy}/{key}"] = value
    return found


def untimed(values: dict[str, Any]) -> dict[str, Any]:
    """Without what a clock decides."""
    return {key: value for key, value in values.items() if not key.endswith("_s")}


# ---- a run that ends by itself --------------------------------------------------------------------------------------


def test_the_files_of_a_run(finished: TrainLoop) -> None:
    path = finished.directory.path
    found = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert {"config.yaml", "versions.json", "metrics.jsonl", "summary.json", "report.html"} <= found
    assert {f"episodes/{name}.jsonl" for name in ("test_00000", "test_00002", "validation_00001")} <= found
    for name in ("last", "best"):
        for policy in ("tool", "plan"):
            assert (path / "checkpoints" / name / policy / "model.safetensors").is_file()
    assert not [name for name in found if "tmp" in name or "old" in name]


def test_other_boards_and_a_validation_before_training(build: Build, finished: TrainLoop) -> None:
    loop = build("loop.task_seed=1", "loop.validate_first=true", "loop.iterations=0")
    train.train(loop)
    assert "validation_before/success" in summary(loop)
    for split, name in (("validation", "validation_00000"), ("test", "test_00000")):
        lines = (loop.directory.path / "episodes" / f"{name}.jsonl").read_text().splitlines()
        own = [json.loads(line)["task_id"] for line in lines]
        assert own == [task.task_id for task in loop.world.tasks(split, 3, 1)]
        assert own != [task.task_id for task in finished.held_out.tasks[split]]


def test_one_row_of_metrics_an_iteration(finished: TrainLoop) -> None:
    found = rows(finished)
    assert [row["iteration"] for row in found] == [1, 2]
    for row in found:
        assert all("/" in key for key in row if key != "iteration")
        assert all(isinstance(value, float | int | list) for value in row.values())
        expected = {"time/rollout_s", "time/update_s", "time/load_s", "rollout/completions", "rollout/tool/reward"}
        expected |= {f"train/{policy}/{key}" for policy in ("tool", "plan") for key in ("loss", "behaviour_kl_nats")}
        expected |= {"eval/success", "eval/success_ci95", "eval/turns"}
        assert expected <= row.keys()
        # The engine and the learner agree about the probabilities of what was said.
        assert all(abs(row[f"train/{policy}/behaviour_kl_nats"]) < 1e-4 for policy in ("tool", "plan"))
        mismatch = {
            name: [v for k, v in row.items() if k.startswith("mismatch/") and k.endswith(name)] for name in MISMATCH
        }
        assert all(0 <= value < 1e-3 for name in ("max_abs_nats", "k3_nats") for value in mismatch[name])
        assert mismatch["ess_ratio"] == pytest.approx([1] * len(mismatch["k3_nats"]), abs=1e-5)
        assert {key.split("/")[1] for key in row if key.startswith("mismatch/")} == {"tool", "plan"}


def test_the_summary_of_a_run(finished: TrainLoop) -> None:
    found = summary(finished)
    for when in ("eval_before", "eval", "eval_best"):
        low, high = found[f"{when}/success_ci95"]
        assert 0 <= low <= found[f"{when}/success"] <= high <= 1
        assert 1 <= found[f"{when}/turns"] <= 2
    for total in ("completions", "tokens", "env_steps"):
        assert found[f"train/{total}"] == sum(row[f"rollout/{total}"] for row in rows(finished)) > 0
    assert found["iterations"] == 2
    assert found["time/wall_s"] > 0
    assert found["status"] == "finished" and "error" not in found


def test_the_episodes_of_a_run(finished: TrainLoop) -> None:
    lines = (finished.directory.path / "episodes" / "test_00002.jsonl").read_text().splitlines()
    episodes = [json.loads(line) for line in lines]
    assert [e["task_id"] for e in episodes] == [task.task_id for task in finished.held_out.tasks["test"]]
    assert sum(e["success"] for e in episodes) / 3 == pytest.approx(summary(finished)["eval/success"])
    assert {"turn", "agent", "saw", "said", "team", "local"} <= episodes[0]["messages"][0].keys()


def test_the_last_checkpoint_holds_the_last_weights(finished: TrainLoop) -> None:
    assert same(checkpoint(finished, "last"), weights(finished))
    state = json.loads((finished.directory.checkpoints / "last" / "state.json").read_text())
    assert state["iteration"] == 2 and state["versions"] == {"tool": 2, "plan": 2}


def test_every_iteration_has_its_own_tasks_and_draws(finished: TrainLoop) -> None:
    learnt = [(tasks, seed) for tasks, seed in finished.sampler.calls if tasks[0].split == "train"]  # not the watched
    (first, one), (second, other) = learnt
    assert one != other
    assert {task.task_id for task in first} != {task.task_id for task in second}
    assert [task.split for task in first + second] == ["train"] * 6
    assert {task.split for task in finished.held_out.tasks["validation"]} == {"validation"}
    assert {task.split for task in finished.held_out.tasks["test"]} == {"test"}


def test_held_out_tasks_are_drawn_once(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the run is checked, after one of them alone: in some worlds they take minutes."""
    counts, draw = [], Sokoban.tasks

    def tasks(self: Sokoban, split: Split, count: int, seed: int) -> list[Task]:
        if split == "test":
            counts.append(count)
        return draw(self, split, count, seed)

    monkeypatch.setattr(Sokoban, "tasks", tasks)
    train.train(build("loop.iterations=0"))
    assert counts == [1, 3]


def test_training_moves_the_weights_of_every_policy(finished: TrainLoop) -> None:
    base, after = load_model("laptop").state_dict(), weights(finished)
    for policy in ("tool", "plan"):
        assert any(not torch.equal(after[f"{policy}/{key}"], value) for key, value in base.items())
    assert any(not torch.equal(after[f"tool/{key}"], after[f"plan/{key}"]) for key in base)


def test_an_equal_seed_gives_an_equal_run(finished: TrainLoop, build: Build) -> None:
    again = build()
    train.train(again)
    assert same(weights(again), weights(finished))
    assert list(map(untimed, rows(again))) == list(map(untimed, rows(finished)))
    assert untimed(summary(again)) == untimed(summary(finished))
    for file in (finished.directory.path / "episodes").iterdir():
        assert (again.directory.path / "episodes" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_diagnostics_change_nothing_but_themselves(finished: TrainLoop, build: Build) -> None:
    """The run with them has played a probe, with its own seeds."""
    off = build("diagnostics=off")
    train.train(off)
    assert same(weights(off), weights(finished))
    trained = [{k: v for k, v in untimed(row).items() if not k.startswith("diagnostics/")} for row in rows(finished)]
    assert list(map(untimed, rows(off))) == trained
    first, second = rows(finished)
    assert 0 <= first["diagnostics/tool/influence"] <= 1 and "diagnostics/tool/influence" not in second
    assert summary(finished)["alarms"] == []
    for file in (finished.directory.path / "episodes").iterdir():
        same_file = off.directory.path / "episodes" / file.name
        assert not same_file.exists() if file.name.startswith("train_") else same_file.read_bytes() == file.read_bytes()


def test_alarms_are_in_the_summary_as_soon_as_they_are_raised(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed has no other summary."""
    alarm = "diagnostics.alarms"
    loop = build("loop.iterations=1", f"{alarm}.grad_norm=10", f"{alarm}.solved=2", f"{alarm}.window=1")

    async def killed(*_: Any, **__: Any) -> None:
        before = summary(loop)
        assert "status" not in before and "eval_before/success" in before
        assert {each["policy"] for each in before["alarms"] if each["alarm"] == "nothing_learnt"} == {"plan", "tool"}
        raise InterruptedError

    monkeypatch.setattr(loop.held_out, "validate", killed)
    with pytest.raises(InterruptedError):
        train.train(loop)


@pytest.mark.slow
def test_trees_are_kept_and_change_nothing(finished: TrainLoop, build: Build) -> None:
    """Every iteration, with watched tasks, scores and pictures: the weights are the same to the bit."""
    kept = build("diagnostics.trees.every=1", "diagnostics.trees.watched=2", "diagnostics.trees.tasks=1")
    train.train(kept)
    assert same(weights(kept), weights(finished))
    assert ["time/trees_s" in row for row in rows(finished)] == [True, False], "a row with this time has a file"
    run = RunReader(kept.directory.path)
    assert [(tree["iteration"], tree["watched"]) for tree in run.tree_records()] == [
        (n, w) for n in (0, 1) for w in (0, 1, 1)
    ]
    assert [tree["split"] for tree in run.tree_records(0)] == ["train", "validation", "validation"]
    assert [tree["task_id"] for tree in run.tree_records(0)[1:]] == [
        tree["task_id"] for tree in run.tree_records(1)[1:]
    ]
    moved = 0.0
    for tree in run.tree_records():
        assert not tree.get("problem") and tree["pictures"]
        for candidate in (each for node in tree["nodes"] for each in node["candidates"]):
            assert len(candidate["tokens"]) == len(candidate["token_ids"]) == len(candidate["learner_logprobs"])
            assert candidate["learner_logprobs"] == pytest.approx(candidate["logprobs"], abs=1e-3)
            moved += sum(map(abs, map(float.__sub__, candidate["updated_logprobs"], candidate["learner_logprobs"])))
    assert moved > 0.01  # the update moved the policies
    for row, iteration in zip(run.rows, (0, 1), strict=True):
        assert row["diagnostics/trees_bytes"] == run.tree_files[iteration].path.stat().st_size
        assert row["diagnostics/watched_completions"] > 0 and row["time/trees_s"] > 0


@pytest.mark.slow
def test_another_seed_gives_another_run(finished: TrainLoop, build: Build) -> None:
    other = build("seed=1", "loop.iterations=1")
    train.train(other)
    mine, others = ({k: v for k, v in untimed(rows(loop)[0]).items() if "rollout/" in k} for loop in (finished, other))
    assert mine.keys() == others.keys()
    assert mine != others


@pytest.mark.slow
def test_loggers_get_every_row_and_change_nothing(finished: TrainLoop, build: Build) -> None:
    loop = build("logger=[jsonl,csv]")
    train.train(loop)
    assert list(map(untimed, rows(loop))) == list(map(untimed, rows(finished)))
    with (loop.directory.path / "csv" / "version_0" / "metrics.csv").open() as file:
        before, *written, after = csv.DictReader(file)
    assert [row["step"] for row in (before, *written, after)] == ["0", "1", "2", "2"]
    assert float(before["eval_before/success"]) == summary(loop)["eval_before/success"]
    for row, line in zip(written, rows(loop), strict=True):
        assert {key: float(value) for key, value in row.items() if value} == scalars(line) | {"step": line["iteration"]}
    assert float(after["summary/eval/success"]) == summary(loop)["eval/success"]


# ---- when a run ends ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_learning_rate_of_0_changes_nothing(build: Build) -> None:
    loop = build(*(f"policies.{name}.optimizer.lr=0" for name in ("tool", "plan")), "loop.iterations=1")
    before = weights(loop)
    train.train(loop)
    assert same(weights(loop), before)
    assert all(rows(loop)[0][f"train/{name}/grad_norm"] > 0 for name in ("tool", "plan"))


@pytest.mark.slow
def test_a_budget_of_completions_ends_a_run(build: Build, capsys: pytest.CaptureFixture[str]) -> None:
    loop = build("loop.completions=1", "loop.iterations=5", "loop.eval_every=5")
    train.train(loop)
    assert "iteration 1/1  " in capsys.readouterr().out  # no time is foretold for iterations that will not be
    (row,) = rows(loop)
    assert "eval/success" in row  # the last iteration is always validated
    assert summary(loop)["iterations"] == 1


def test_no_iterations_is_an_evaluation(build: Build) -> None:
    loop = build("loop.iterations=0")
    found = train.train(loop)
    assert rows(loop) == []
    assert found["eval/success"] == found["eval_before/success"] == found["eval_best/success"]
    assert same(checkpoint(loop, "last"), weights(loop))


@pytest.mark.slow
def test_the_best_weights_on_validation_are_scored_too(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = build()
    real, seen = loop.held_out.evaluate, []
    success = {1: 0.9, 2: 0.1}

    async def evaluate(world: TeamEnv, progress: Progress, split: str, *names: str) -> dict[str, Any]:
        result = await real(world, progress, split, *names)
        seen.append((split, loop.progress.iteration, engine_weights(loop)))
        return result | {"success": success[loop.progress.iteration]} if split == "validation" else result

    monkeypatch.setattr(loop.held_out, "evaluate", evaluate)
    train.train(loop)
    assert [(split, iteration) for split, iteration, _ in seen] == [
        ("test", 0),
        ("validation", 1),
        ("validation", 2),
        ("test", 2),
        ("test", 2),
    ]
    assert json.loads((loop.directory.checkpoints / "best" / "state.json").read_text())["iteration"] == 1
    after_one, last, best = (seen[i][2] for i in (1, 3, 4))
    assert same(best, after_one) and same(best, checkpoint(loop, "best"))
    assert same(last, weights(loop)) and not same(last, best)
    names = {file.name for file in (loop.directory.path / "episodes").iterdir()}
    assert {"test_00002.jsonl", "test_best.jsonl"} <= names


# ---- when it does not end by itself ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_engines_sleep_while_policies_learn_and_wake_with_the_new_weights(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = build("loop.eval_every=50")
    names = {id(engine): name for name, engine in loop.team.engines.items()}
    noted: list[str] = []

    def noting(of: type, name: str) -> None:
        method = getattr(of, name)

        async def call(self: Any, *given: Any) -> Any:
            noted.append(f"{name} {names.get(id(self)) or ', '.join(self.policies)}")
            found = await method(self, *given)
            return found | {"probe_nats": 0.1 * len(noted)} if name == "wake" else found

        monkeypatch.setattr(of, name, call)

    for name in ("sleep", "load", "wake", "generate"):
        noting(TorchEngine, name)
    noting(Pool, "update")
    train.train(loop)
    played = [what for what in noted if not what.startswith("generate")]
    loads = ["load tool", "load plan", "wake tool", "wake plan"]
    update = ["sleep tool", "sleep plan", "update tool", "update plan", *loads]
    assert played == [*loads, *update, *update]
    asleep = False
    for what in noted:
        asleep = what.startswith("sleep") or (asleep and what != "wake tool")
        assert not (asleep and what.startswith("generate"))
    measured = [row["rollout/probe_nats"] for row in rows(loop)]
    assert len(measured) == 2 and 0 < measured[0] < measured[1]  # what waking measured, its largest


def test_an_interrupt_leaves_a_usable_run(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = build("loop.iterations=50", "loop.eval_every=50")
    show = loop.display.iteration

    def iteration(done: int, *rest: Any) -> None:
        show(done, *rest)
        if done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop.display, "iteration", iteration)
    with pytest.raises(KeyboardInterrupt):
        train.train(loop)
    found = summary(loop)
    assert found["status"] == "interrupted" and "error" not in found
    assert found["iterations"] == 2
    assert "eval_before/success" in found and "eval/success" not in found
    assert [row["iteration"] for row in rows(loop)] == [1, 2]
    assert same(checkpoint(loop, "last"), weights(loop))


@pytest.mark.slow
def test_an_interrupt_during_an_update_lets_it_finish(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    # A signal cancels the main task; a checkpoint must never hold policies of which only some have learnt.
    loop = build()
    clip, steps = Learner._clip, []

    async def main() -> None:
        run = asyncio.create_task(loop.run())
        events = asyncio.get_running_loop()

        def interrupted(self: Learner) -> float:
            steps.append(self.name)
            if len(steps) == 1:
                events.call_soon_threadsafe(run.cancel)
            return clip(self)

        monkeypatch.setattr(Learner, "_clip", interrupted)
        await run

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert summary(loop)["status"] == "interrupted"
    state = json.loads((loop.directory.checkpoints / "last" / "state.json").read_text())
    assert state["iteration"] == 1 and state["versions"] == {"tool": 1, "plan": 1}
    assert [row["iteration"] for row in rows(loop)] == [1]
    assert same(checkpoint(loop, "last"), weights(loop))


@pytest.mark.slow
def test_an_error_is_not_swallowed_and_leaves_the_checkpoint_before(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = build("loop.checkpoint.every=1")
    real = loop.credit._checked_advantages

    def broken(key: Hashable, rewards: list[float]) -> list[float]:
        return [float("nan")] * len(rewards) if loop.progress.iteration == 1 else real(key, rewards)

    monkeypatch.setattr(loop.credit, "_checked_advantages", broken)
    with pytest.raises(NonFiniteError):
        train.train(loop)
    found = summary(loop)
    assert found["status"] == "failed"
    assert found["error"].startswith("NonFiniteError: policy '") and "loss is nan" in found["error"]
    assert found["error"] in html.unescape((loop.directory.path / "report.html").read_text())
    assert found["iterations"] == len(rows(loop)) == 1
    state = json.loads((loop.directory.checkpoints / "last" / "state.json").read_text())
    assert state["versions"] == {"tool": 1, "plan": 1}
    assert [path.name for path in loop.directory.checkpoints.glob("iteration_*")] == ["iteration_00001"]


def test_whatever_fails_at_the_end_the_rest_is_written_and_closed(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop, closed = build("loop.iterations=0"), []

    def failing(name: str, inner: Callable[[], Any]) -> Callable[[], Any]:
        async def close() -> None:
            await inner()
            closed.append(name)
            raise OSError(f"{name} does not close")

        return close

    def drain() -> dict[str, float]:
        if loop.progress.summary.get("eval/success") is not None:  # what comes at the end
            raise OSError("no counters")
        return {}

    engine = loop.team.engines["tool"]
    monkeypatch.setattr(engine, "close", failing("engine", engine.close))
    monkeypatch.setattr(loop.world, "close", failing("world", loop.world.close))
    monkeypatch.setattr(loop.team, "drain_engine_counters", drain)
    pools = {policy.pool for policy in loop.team.policies.values()}
    for index, pool in enumerate(pools):
        monkeypatch.setattr(pool, "close", failing(f"pool {index}", pool.close))
    with pytest.raises(OSError, match="world does not close"):
        train.train(loop)
    assert set(closed) == {"engine", "world", *(f"pool {index}" for index in range(len(pools)))}
    assert summary(loop)["status"] == "finished" and (loop.directory.checkpoints / "last").exists()
    assert "what the engines have counted last is lost: OSError: no counters" in caplog.text

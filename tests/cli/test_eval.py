"""The command from end to end: a small real run is trained, then evaluated."""

import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig
from rich.console import Console

from troupe.cli import train
from troupe.cli.start import start
from troupe.envs.grid.sokoban import Sokoban
from troupe.errors import ConfigError, LostEpisodesError
from troupe.evaluation.comparison import comparisons
from troupe.evaluation.partial import PartialEvaluation, PlayedSample
from troupe.evaluation.records import EvaluationRecord
from troupe.experience import Task

from ..asked import evaluated

SMALL = [
    "experiment=sokoban_specialized",
    "seed=7",
    "loop.iterations=1",
    "loop.tasks_per_iteration=8",
    "loop.eval_every=1",
    "loop.validation_tasks=4",
    "loop.test_tasks=12",
    "env.horizon=2",
]
Ask = Callable[..., EvaluationRecord]


@pytest.fixture(scope="module")
def run_dir(composed: Callable[..., DictConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluated") / "run"
    train.run(composed(*SMALL, f"run_dir={path}"))
    return path


@pytest.fixture(scope="module")
def ask(run_dir: Path) -> Ask:
    """``ask("key=value", ...)``: an evaluation of the run."""

    def asked(*words: str, console: Console | None = None) -> EvaluationRecord:
        return evaluated(run_dir, *words, console=console)

    return asked


def summary(run_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    return content


def metrics(evaluation: EvaluationRecord, condition: str = "sampled") -> dict[str, Any]:
    return dict(evaluation.conditions[condition])


@pytest.mark.parametrize(("checkpoint", "prefix"), [("base", "eval_before"), ("last", "eval"), ("best", "eval_best")])
def test_an_evaluation_repeats_the_runs_own_figures(run_dir: Path, ask: Ask, checkpoint: str, prefix: str) -> None:
    row = metrics(ask(f"checkpoint={checkpoint}", "temperature=own"))
    known = {k.removeprefix(f"{prefix}/"): v for k, v in summary(run_dir).items() if k.startswith(f"{prefix}/")}
    assert {key: row[key] for key in known} == known
    assert (row["tasks"], row["samples"]) == (12, 1)


@pytest.mark.slow
def test_several_samples_sum_up_what_is_written(ask: Ask) -> None:
    evaluation = ask("checkpoint=base", "samples=4", "tasks=6")
    assert list(evaluation.conditions) == ["sampled", "greedy"]
    rows = [row for row in evaluation.rows() if row["condition"] == "sampled"]
    assert len(rows) == 24 and {row["sample"] for row in rows} == {0, 1, 2, 3}
    values = metrics(evaluation)
    assert values["success"] == fmean(row["success"] for row in rows if row["sample"] == 0)
    assert values["avg@4"] == pytest.approx(fmean(row["success"] for row in rows))
    tasks = evaluation.successes("sampled").values()
    assert values["pass@4"] == pytest.approx(fmean(any(samples) for samples in tasks))
    assert values["avg@4"] <= values["pass@2"] <= values["pass@4"]
    for cost in ("tokens", "prompt_tokens", "env_steps"):
        assert values[cost] == sum(row[cost] for row in rows) > 0
    assert {len(samples) for samples in evaluation.successes("greedy").values()} == {1}
    kept = (evaluation.path / "episodes" / "sampled.jsonl").read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in kept] == list(evaluation.successes("sampled"))
    # The first sample is what one sample alone gives.
    alone = ask("checkpoint=base", "tasks=6")
    assert [first for first, *_ in tasks] == [only for (only,) in alone.successes("sampled").values()]


@pytest.mark.slow
def test_what_is_finished_is_found_and_not_played_again(ask: Ask) -> None:
    words = ("checkpoint=last", "tasks=3", "temperature=own", "world.horizon=1")
    first = ask(*words)
    before = (first.path / "summary.json").stat().st_mtime_ns
    shown = io.StringIO()
    assert ask(*words, console=Console(file=shown)).path == first.path
    assert "finished before" in shown.getvalue() and "horizon=1,sampled" in shown.getvalue()
    assert (first.path / "summary.json").stat().st_mtime_ns == before
    again = ask(*words, "again=true")
    assert again.path == first.path and again.rows() == first.rows()
    assert (first.path / "summary.json").stat().st_mtime_ns != before
    for other in ("seed=8", "split=validation", "temperature=0.5"):
        assert ask(*words, other).path != first.path


@pytest.mark.slow
def test_an_interrupted_evaluation_goes_on(ask: Ask, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("checkpoint=base", "tasks=5", "samples=3", "seed=11")
    write = PartialEvaluation.write

    def interrupted(self: PartialEvaluation, condition: int, sample: int, played: PlayedSample) -> None:
        write(self, condition, sample, played)
        if sample == 1:
            raise KeyboardInterrupt

    def nothing_kept(*given: Any) -> None:
        assert given[-1].count == 0, "samples of another number of threads"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt, match="2 of 4 samples are kept"):
        patch.setattr(PartialEvaluation, "write", interrupted)
        ask(*words)
    assert len(list((run_dir / "evaluations").glob(".*.partial"))) == 1
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt, match="nothing was written"):
        patch.setattr("troupe.cli.eval._play", nothing_kept)
        ask(*words, "threads=2")
    shown = io.StringIO()
    resumed = ask(*words, console=Console(file=shown))
    assert "2 of 4 samples were played before" in shown.getvalue()
    assert not list((run_dir / "evaluations").glob(".*.partial"))
    rows, conditions = resumed.rows(), resumed.conditions
    straight = ask(*words, "again=true")
    assert straight.rows() == rows and straight.conditions == conditions


@pytest.mark.slow
def test_several_worlds_and_temperatures(ask: Ask) -> None:
    evaluation = ask("tasks=3", "world.horizon=[1,3]", "temperature=[0.5,0]", "name=grid")
    names = [f"horizon={h},{way}" for h in (1, 3) for way in ("temperature=0.5", "greedy")]
    assert list(evaluation.conditions) == names
    assert evaluation.path.name == "grid"
    assert metrics(evaluation, names[0])["turns"] == 1
    with pytest.raises(ValueError, match=r"name=grid: .* already holds another evaluation"):
        ask("tasks=2", "name=grid")


@pytest.mark.slow
def test_lost_episodes_are_reported_beside_success(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("checkpoint=base", "temperature=own", "tasks=6", "samples=2")
    whole = ask(*words, "name=whole")
    broken = whole.rows()[1]["task_id"]
    reset = Sokoban.reset

    def breaking(self: Sokoban, task: Task) -> None:
        reset(self, task)
        if task.task_id == broken and sys._getframe(1).f_code.co_name == "start_env":
            raise KeyError("my_key")

    monkeypatch.setattr(Sokoban, "reset", breaking)
    with pytest.raises(LostEpisodesError, match=r"1 of 6 episodes are lost.*KeyError: 'my_key' \(task "):
        ask(*words, "again=true")
    with pytest.raises(KeyError, match="my_key"):
        ask(*words, "again=true", "faults=strict")
    lost = ask(*words, "again=true", "name=lost", "faults.max_lost_share=0.2")
    values = metrics(lost)
    assert (values["tasks"], values["episodes"], values["lost_episodes"]) == (6, 10, 2)
    kept = {task: wins for task, wins in whole.successes("sampled").items() if task != broken}
    assert lost.successes("sampled") == kept | {broken: []} and list(lost.successes("sampled")) == list(
        whole.successes("sampled")
    )
    assert values["success"] == fmean(first for first, _ in kept.values())
    assert values["avg@2"] == pytest.approx(fmean(map(fmean, kept.values())))
    assert [row["lost"] for row in lost.rows()] == [None, "world", *[None] * 5, "world", *[None] * 4]
    ((_, compared),) = comparisons([str(whole.path)], [str(lost.path)])
    assert (compared.tasks, compared.lost, compared.difference) == (5, 1, 0)


@pytest.mark.slow
def test_stand_ins_swap_and_cross_play(run_dir: Path, ask: Ask) -> None:
    words = ("checkpoint=last", "temperature=own", "tasks=4")
    silent = ask(*words, "silence=[tool]")
    assert {m["said"] for m in messages(silent) if m["agent"] == "tool"} == {""}
    echoed = messages(ask(*words, "echo={plan: tool}"))
    pairs = zip(echoed[::2], echoed[1::2], strict=True)
    assert all(
        (one["agent"], other["agent"]) == ("tool", "plan") and one["said"] == other["said"] for one, other in pairs
    )
    plain, swapped = ask(*words), ask(*words, "swap=true")
    assert messages(plain) != messages(swapped)
    # Both roles from a copy of the run are the run itself, recognised by content; one untrained role is not.
    copied = run_dir.parent / "copy"
    shutil.copytree(run_dir, copied, dirs_exist_ok=True)
    assert ask(*words, f"agents.tool={copied}", f"agents.plan={copied}@last").path == plain.path
    assert messages(ask(*words, "agents.tool=base")) != messages(plain)


def messages(evaluation: EvaluationRecord) -> list[dict[str, Any]]:
    lines = (evaluation.path / "episodes" / "sampled.jsonl").read_text().splitlines()
    return [message for line in lines for message in json.loads(line)["messages"]]


def test_evaluations_can_be_compared(ask: Ask) -> None:
    before, after = ask("checkpoint=base", "temperature=own"), ask("checkpoint=last", "temperature=own")
    ((name, row),) = comparisons([str(before.path)], [str(after.path)])
    assert (name, row.tasks) == ("sampled", 12)
    assert row.difference == pytest.approx(metrics(after)["success"] - metrics(before)["success"])
    with pytest.raises(ValueError, match=r"different tasks: number 4 is sokoban-\w+ in .*, but .* ends"):
        comparisons([str(before.path)], [str(ask("checkpoint=last", "temperature=own", "tasks=3").path)])


def test_a_split_with_too_few_tasks(ask: Ask) -> None:
    with pytest.raises(ConfigError, match="tasks=500, split=test: sokoban: found only"):
        ask("world.size=4", "world.inner_walls=0", "world.min_moves=1", "tasks=500")


def test_an_unreadable_checkpoint(run_dir: Path, ask: Ask, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(run_dir, broken)
    file = broken / "checkpoints" / "last" / "tool" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ConfigError, match=r"agents\.tool=.*/last/tool cannot be loaded"):
        ask("checkpoint=last", f"agents.tool={broken}", "tasks=2")


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Callable[..., str]]:
    """``command("key=value", ...)``: what a user reads, in an empty folder."""

    def said(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["troupe"])
        monkeypatch.chdir(tmp_path)
        try:
            start("eval", words)
        except SystemExit as end:
            return str(end.code)
        return capsys.readouterr().out

    yield said
    GlobalHydra.instance().clear()


def test_an_untrained_team_by_the_name_of_its_experiment(command: Callable[..., str], tmp_path: Path) -> None:
    out = command("exp=sokoban_shared", "tasks=4", "temperature=0", 'overrides=["env.horizon=1"]')
    folder, header, first, *_ = out.splitlines()
    assert folder.startswith("runs/sokoban_shared/base/evaluations/base-test-")
    assert header.split() == ["greedy"] and first.split()[0] == "success"
    assert metrics(EvaluationRecord.read(tmp_path / folder), "greedy")["turns"] == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "give one of run=DIR, a run directory, or exp=NAME"),
        (["run=x", "exp=y"], "give one of run=DIR, a run directory, or exp=NAME"),
        (["run=nowhere"], "run: nowhere is not a run directory: there is no such folder"),
        (["exp=sokoban_sharde"], "experiment=sokoban_sharde is unknown; did you mean sokoban_shared?"),
        (["run=x", "splt=train"], "splt is an unknown key; did you mean split?"),
        (["run=x", 'overrides=["seed=1"]'], "overrides belong to exp=NAME"),
        (["exp=sokoban_shared", "checkpoint=best"], "checkpoint=best: exp has no run"),
        (["exp=sokoban_shared", "temperature=-1"], "temperature must be own or a number of at least 0, got -1"),
        (["exp=sokoban_shared", "world.sise=7"], "world.sise is an unknown key"),
        (["exp=sokoban_shared", "episodes=-1", "threads=0"], "episodes must be a whole number of at least 0, got -1"),
        (
            ["exp=plan_path_shared", "world.size=12", "tasks=2"],
            "world (size=12,sampled): agent 'tool', task plan_path-",
        ),
    ],
    ids=str,
)
def test_a_mistake_is_answered_in_one_line(
    command: Callable[..., str], tmp_path: Path, words: list[str], expected: str
) -> None:
    said = command(*words)
    assert said.startswith(f"error: {expected}") and "\n" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_an_older_version_that_cannot_be_built(command: Callable[..., str], old_run: Path) -> None:
    said = command(f"run={old_run}")
    assert said == (
        "error: world._target_=troupe.envs.sokoban.Sokoban cannot be imported: No module named 'troupe.envs.sokoban'"
    )
    assert not (old_run / "evaluations").exists()


def test_a_run_whose_configuration_lacks_something(command: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("env: {}\n")
    assert command("run=run") == "error: run=run: its config.yaml has no 'team'"


def test_a_multirun_evaluates_each_and_leaves_no_folder(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["troupe"])
    monkeypatch.chdir(tmp_path)
    start("eval", [f"run={run_dir}", "-m", "swap=false,true", "tasks=2", "checkpoint=last", "split=train"])
    folders = set(re.findall(r"^.*/evaluations/last-train-.*$", capsys.readouterr().out, re.MULTILINE))
    swapped = {yaml.safe_load(Path(folder, "config.yaml").read_text())["request"]["swap"] for folder in folders}
    assert len(folders) == 2 and len(swapped) == 2
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["runs", "runs/multirun.yaml"]

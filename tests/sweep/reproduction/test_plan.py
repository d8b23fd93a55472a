"""Every table composes and plans at every scale."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig

from troupe.envs.code_collab.reward import POINTS
from troupe.errors import ConfigError
from troupe.sweep.reproduction.gpu_hours import (
    SettingHours,
    completions_of,
    evaluated_of,
    evaluation_hours,
    gpu_hours,
    lines_of,
    parameters,
    run_hours,
    team_hours,
)
from troupe.sweep.reproduction.options import ReproduceOptions
from troupe.sweep.reproduction.plan import plan_table
from troupe.sweep.reproduction.table import SCALES, ReproductionTable, table_names
from troupe.sweep.reproduction.teams import cells_of

CASES = [(name, scale) for name in table_names() for scale in SCALES if scale in ReproductionTable.read(name).scales]
QUICK = [("writing", "laptop"), ("turns", "paper"), ("role_swap", "smollm2")]


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    yield
    HydraConfig.instance().cfg = None


def check(name: str, scale: str, runs: Path) -> None:
    options, words = ReproduceOptions.split([f"table={name}", f"scale={scale}", f"runs={runs}", "seeds=1"])
    (table,) = options.tables
    plan = plan_table(options, table, words)
    assert plan.folder == runs / "reproduce" / name / scale and not plan.folder.exists()
    for part in plan.parts:
        settings = {job.setting for job in part.record.jobs}
        assert settings == table.settings_at(options.scale, part.part).keys()
        for job in part.record.jobs:
            # The names that <first> and <second> stand for are agents of every team of two.
            agents = part.configs[job.training]["team"]
            assert len(agents) == 1 or "<first>" not in str(table.settings) or {*part.part.agents} == {*agents}
            assert (scale == "paper") == ("vllm" in part.configs[job.training]["engine"]["_target_"].lower())
        if scale == "paper":
            assert all(cost.hours > 0 and cost.completions > 0 for cost in gpu_hours(part))


@pytest.mark.parametrize(("name", "scale"), QUICK)
def test_some_tables_plan(name: str, scale: str, tmp_path: Path) -> None:
    check(name, scale, tmp_path)


@pytest.mark.parametrize(
    ("key", "changes", "said"),
    [
        ("rows", {"metric": "afer"}, "rows.*: metric=afer is unknown; did you mean after"),
        ("claims", {"metric": "at_tokens"}, "claim '.*': metric=at_tokens is unknown"),
        ("claims", {"at_least": math.nan}, "claim '.*': at_least must be a finite number, got nan"),
        ("claims", {"low_above": -math.inf}, "claim '.*': low_above must be a finite number, got -inf"),
        ("claims", {"over_metric": "at_tokens"}, "claim '.*': metric=at_tokens is unknown"),
    ],
)
def test_figures_that_a_table_does_not_have_are_refused(key: str, changes: dict[str, Any], said: str) -> None:
    options, words = ReproduceOptions.split(["table=writing"])
    (table,) = options.tables
    if key == "rows":
        label = next(label for label, row in table.rows.items() if row.setting)
        wrong = replace(table, rows={**table.rows, label: replace(table.rows[label], **changes)})
    else:
        own = next(claim for claim in table.claims if claim.setting)
        wrong = replace(table, claims=[replace(own, **changes)])
    with pytest.raises(ConfigError, match=f"table=writing: {said}"):
        plan_table(options, wrong, words)


@pytest.mark.parametrize("scale", [pytest.param("laptop", marks=pytest.mark.slow), "paper"])
def test_the_most_that_magrpos_returns_can_be(scale: str, tmp_path: Path) -> None:
    """The points of the best program, or the sum over the turns that are judged: drafts are not."""
    options, words = ReproduceOptions.split(["table=magrpo", f"scale={scale}", f"runs={tmp_path}", "seeds=1"])
    (table,) = options.tables
    rows = [row for row in table.rows.values() if row.metric.startswith("return")]
    checked = 0
    for part in plan_table(options, table, words).parts:
        envs = {job.setting: part.configs[job.training]["env"] for job in part.record.jobs}
        for row in (row for row in rows if row.setting in envs):
            env = envs[row.setting]
            judged = env["horizon"] - (env["order"] == "discussion")
            assert row.most[options.scale] == POINTS * (judged if env["turn_reward"] == "points" else 1), row
            checked += 1
    assert checked == (len(rows) - 1 if scale == "laptop" else 2 * len(rows)), "the laptop has no discussion"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), CASES)
def test_every_table_plans_at_every_scale(name: str, scale: str, tmp_path: Path) -> None:
    check(name, scale, tmp_path)


@pytest.mark.slow
def test_other_figures_have_a_folder_of_their_own(tmp_path: Path) -> None:
    options, words = ReproduceOptions.split(["table=writing", f"runs={tmp_path}", "loop.iterations=3", "threads=1"])
    (table,) = options.tables
    folders = [plan_table(options, table, given).folder.name for given in ([], words, words[::-1], words[:1])]
    assert folders[0] == "laptop" and folders[1] == folders[2] and len(set(folders)) == 3
    assert all(name.startswith("laptop-") for name in folders[1:])


def test_runs_of_a_table_are_those_of_its_sweep(tmp_path: Path) -> None:
    from troupe.sweep.options import Options
    from troupe.sweep.plan import plan_sweep

    options, _ = ReproduceOptions.split(["table=competitors", "seeds=1"])
    plan = plan_table(options, options.tables[0], [])
    of_table = {job.setting: job.training for job in plan.parts[-1].record.jobs if plan.parts[-1].name == "sokoban"}
    of_table |= {job.setting: job.training for job in plan.parts[0].record.jobs if plan.parts[0].name == "sokoban"}
    sweep = plan_sweep(Options("algorithm"), [])
    assert of_table == {job.setting: job.training for job in sweep.jobs if job.seed == 0}


def test_cells_of_cross_play(tmp_path: Path) -> None:
    options, _ = ReproduceOptions.split(["table=role_swap", "scale=smollm2", "seeds=3"])
    (part,) = plan_table(options, options.tables[0], []).parts
    # Of three regimes: two exchanges of 3 seeds, each regime with the other 2 seeds, six pairs with all 3 of each.
    assert len(cells_of(part)) == 2 * 3 + 3 * 6 + 6 * 9
    options, _ = ReproduceOptions.split(["table=role_swap", "scale=paper"])
    (part,) = plan_table(options, options.tables[0], []).parts
    # Five regimes, of which one is a single agent's: with itself it plays once per seed, of a pair of its own.
    assert len(cells_of(part)) == 2 * 3 + 3 * 6 + 21 * 9 + 3
    # Each has 200 tasks, four turns and two agents of 1.7B, which answer 512 tokens after a prompt of 1024.
    (teams,) = team_hours(part)
    each = 1.5 * 2 * 1.7e9 * (1024 + 512) * 200 * 4 * 2 / (989e12 * 0.08) / 3600
    assert (teams.part, teams.evaluations) == ("plan_path", 216) and teams.hours == pytest.approx(216 * each)
    *_, line, total = lines_of([SettingHours("plan_path", "own", "", 18, 100.0, 115.0)], [teams])
    assert line == "  plan_path, teams of finished runs: 216 evaluations, 9.5 GPU-hours"
    assert total == "in all 18 runs, 115 GPU-hours, and 216 evaluations of teams, 9.5 GPU-hours"


def test_an_unknown_threshold_is_named_before_a_start(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = Path(__file__).parents[3].joinpath("configs/reproduce/writing.yaml").read_text()
    file.write_text(text.replace("metric: return_after", "metric: luck"))
    options, _ = ReproduceOptions.split([f"table={file}", "seeds=1"])
    with pytest.raises(ConfigError, match=r"table=mine: rows\.one agent, GRPO: metric=luck is unknown"):
        plan_table(options, options.tables[0], [])


CONFIG = {
    "loop": {"iterations": 10, "tasks_per_iteration": 2, "completions": 0, "eval_every": 5}
    | {"validation_tasks": 0, "test_tasks": 0},
    "algorithm": {"sampler": {"_target_": "troupe.rollout.samplers.TreeSampler", "k": 4}},
    "env": {"horizon": 3},
    "team": {"a": "a", "b": "b"},
    "policies": {
        "a": {"base": "Qwen/Qwen3-8B", "tuning": "full", "sampling": {"train": {"max_tokens": 2048}}},
        "b": {"base": None, "tuning": "scripted"},
    },
}


def test_gpu_hours_by_hand() -> None:
    assert completions_of(CONFIG) == 10 * 2 * 4 * 3 * 2
    assert completions_of(CONFIG | {"loop": CONFIG["loop"] | {"completions": 100}}) == 100
    # Of 48 completions per iteration 100 take three: no validation after five; 3 tests of 2 tasks, 3 turns, 2 agents.
    evaluated = {"completions": 100, "validation_tasks": 4, "test_tasks": 2}
    assert evaluated_of(CONFIG | {"loop": CONFIG["loop"] | evaluated}) == 3 * 2 * 3 * 2
    assert evaluated_of(CONFIG | {"loop": CONFIG["loop"] | evaluated | {"completions": 0}}) == (3 * 2 + 2 * 4) * 3 * 2
    joint = {"sampler": {"_target_": "troupe.rollout.samplers.JointSampler", "k": 4}}
    assert completions_of(CONFIG | {"algorithm": joint}) == 10 * 2 * 4 * (1 + 4 + 16) * 2
    # Half of the completions are a's: 240, each of 512 tokens after a prompt of 1024 that four candidates share.
    generating, learning = 2 * 8e9 * (1024 / 4 + 512) * 240, 8 * 8e9 * (1024 + 512) * 240
    expected = 1.5 * (generating / (989e12 * 0.08) + learning / (989e12 * 0.35)) / 3600
    assert run_hours(CONFIG) == pytest.approx(expected)
    frozen = {"policies": CONFIG["policies"] | {"a": CONFIG["policies"]["a"] | {"tuning": "frozen"}}}
    assert run_hours(CONFIG | frozen) == pytest.approx(1.5 * generating / (989e12 * 0.08) / 3600)
    assert parameters("Qwen/Qwen2.5-Coder-3B") == 3e9 and parameters("Qwen/Qwen3-1.7B") == 1.7e9
    with pytest.raises(ConfigError, match="base=mine: its name does not tell its size"):
        parameters("mine")
    # Of independent episodes four share the prompt of the first message, a third of all, and none of the later ones; a
    # second agent reads what the first one wrote, unless both act at once.
    chain = CONFIG | {"algorithm": {"sampler": {"_target_": "troupe.rollout.samplers.chain.ChainSampler", "k": 4}}}
    generating = 2 * 8e9 * (1024 * (1 / 3 / 4 + 2 / 3) + 512) * 240
    expected = 1.5 * (generating / (989e12 * 0.08) + learning / (989e12 * 0.35)) / 3600
    assert run_hours(chain) == pytest.approx(expected)
    second = chain | {"team": {"b": "b", "a": "a"}}
    generating = 2 * 8e9 * (1024 + 512) * 240
    at_once = second | {"env": {"horizon": 3, "order": "simultaneous"}}
    assert run_hours(second) == pytest.approx(1.5 * (generating / (989e12 * 0.08) + learning / (989e12 * 0.35)) / 3600)
    assert run_hours(at_once) == pytest.approx(expected)
    tested = CONFIG | {"loop": CONFIG["loop"] | {"test_tasks": 5}}
    hours = 1.5 * 2 * 8e9 * (1024 + 512) * 5 * 3 * 2 / (989e12 * 0.08) / 3600
    assert evaluation_hours(tested) == pytest.approx(hours)
    assert lines_of([]) == ["in all 0 runs, 0.0 GPU-hours"]

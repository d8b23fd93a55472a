"""What a sweep's yaml and a command line ask for, and how mistakes are answered."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig

from troupe.envs.code_collab.feedback import POINTS
from troupe.errors import ConfigError
from troupe.setup.composition import configurations
from troupe.sweep.options import Options
from troupe.sweep.plan import plan_sweep, plan_table, plan_tuning
from troupe.sweep.publication_file import SCALES, TableFile, table_names
from troupe.sweep.record import SweepRecord
from troupe.sweep.sweep_file import SweepFile
from troupe.sweep.teams import cells_of

from ..worlds import slow_but

ROOT = Path(__file__).parents[2]
SWEEPS = sorted(file.stem for file in (ROOT / "configs" / "sweep").glob("*.yaml"))
FILE: dict[str, Any] = {
    "question": "?",
    "overrides": ["experiment=sokoban_shared", "loop.iterations=3"],
    "settings": {"two": ["algorithm.sampler.k=2"], "four": ["algorithm.sampler.k=4"]},
    "seeds": [0, 1],
}


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    yield
    HydraConfig.instance().cfg = None


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(FILE, sort_keys=False))
    return tmp_path / "own.yaml"


def planned(*arguments: str) -> SweepRecord:
    return plan_sweep(*Options.split("sweep", arguments))


def mistake(*arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(*arguments)
    return str(caught.value)


QUICK = ("k", "role_swap")
"""Of sweeps with few settings."""


@pytest.mark.parametrize("name", slow_but(QUICK, SWEEPS))
def test_every_sweep_that_is_shipped_can_be_read(name: str) -> None:
    with configurations():
        file = SweepFile.read(name)
    assert len(file.seeds) >= 3 or not file.verdicts, "an interval over seeds needs more than two"
    known = {choice.stem for group in ("regime", "algorithm") for choice in (ROOT / "configs" / group).glob("*.yaml")}
    asked = {
        one.split("=")[1] for two in file.settings.values() for one in two if one.startswith(("regime=", "algorithm="))
    }
    choices = {one for one in asked if not one.replace(".", "").isdigit()}
    if choices <= known:
        first = [f"{key}={values[0]}" for key, values in file.tuning.grid.items()] if file.tuning else []
        record = plan_sweep(*Options.split("sweep", [f"sweep={name}", "seed=0"]), dict.fromkeys(file.settings, first))
        assert len(record.jobs) == len(file.settings)
    else:  # what it compares is not all there: refused by name, before anything runs
        assert any(f"={one} is unknown" in mistake(f"sweep={name}") for one in choices - known)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["sokoban_lora", "writing_specialized"])
def test_with_learning_rate_0_nothing_learns(experiment: str) -> None:
    """Neither whole models nor adapters."""
    name = "learning_magrpo" if experiment.startswith("writing") else "learning"
    record = planned(f"sweep={name}", f"experiment={experiment}", "seed=0")
    [still] = [job for job in record.jobs if job.setting == "learning rate 0"]
    with initialize_config_module("troupe.configs", version_base="1.3"):
        policies = compose("train", overrides=[*still.overrides]).policies.values()
    assert {policy.optimizer.lr for policy in policies} == {0.0}


def test_settings_times_seeds(own: Path) -> None:
    record = planned(f"sweep={own}", "runs=there")
    assert [(job.setting, job.variant, job.seed) for job in record.jobs] == [
        ("two", "", 0),
        ("two", "", 1),
        ("four", "", 0),
        ("four", "", 1),
    ]
    common = ("experiment=sokoban_shared", "loop.iterations=3")
    assert record.jobs[0].overrides == (*common, "algorithm.sampler.k=2", "seed=0")
    assert len({job.training for job in record.jobs}) == 4
    assert record.folder == Path("there/sweeps/own/sokoban_shared")


def test_the_command_line_replaces_what_holds_for_all(own: Path) -> None:
    record = planned(f"sweep={own}", "experiment=sokoban_specialized", "seed=7", "loop.iterations=5")
    assert [job.seed for job in record.jobs] == [7, 7]
    assert record.jobs[0].overrides[:2] == ("experiment=sokoban_specialized", "loop.iterations=5")
    assert record.folder.name == "sokoban_specialized"


def test_several_values_make_variants(own: Path) -> None:
    record = planned(f"sweep={own}", "env.horizon=3,4", "seed=range(0,2)")
    assert len(record.jobs) == 2 * 2 * 2
    assert [job.variant for job in record.jobs[:4]] == ["env.horizon=3"] * 2 + ["env.horizon=4"] * 2
    assert [job.seed for job in record.jobs[:2]] == [0, 1]


def test_evaluation_settings_leave_the_training_hash(own: Path) -> None:
    few, many = (planned(f"sweep={own}", f"loop.test_tasks={count}").jobs[0] for count in (2, 20))
    assert few.training == many.training
    assert (few.evaluation["loop.test_tasks"], many.evaluation["loop.test_tasks"]) == (2, 20)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["algorithm.sampler.k=3"], "varies algorithm.sampler.k; it cannot be given"),
        (["run_dir=here"], "run_dir cannot be given"),
        (["resume=there"], "resume cannot be given"),
        (["++run_dir=here"], "run_dir cannot be given"),
        (["experiment=sokoban_sharde"], "experiment=sokoban_sharde is unknown; did you mean sokoban_shared?"),
        (["loop.iteration=3"], "setting two (experiment=sokoban_shared loop.iterations=3 algorithm.sampler.k=2 loop."),
        (["env.tool_viw=map"], "): env.tool_viw is an unknown key; did you mean env.tool_view?"),
        (["experiment=couplet_shared", "env.size=5"], "): env.size is an unknown key"),
        (["algorithm.credit._target_=troupe.gone"], "): algorithm.credit._target_=troupe.gone cannot be imported"),
        (["+sed=3"], "sed is an unknown key; did you mean seed?"),
        (["loop.test_tasks=0"], "loop.test_tasks must be a whole number of at least 1, got 0"),
        (["seed=[1"], "seed=[1 is no override: "),
        (["launcher=joblip"], "launcher: it must be 'basic', 'joblib', 'submitit' or 'submitit_local', got 'joblip'"),
        (["rerun_stale=maybe"], "rerun_stale: it must be a valid boolean, unable to interpret input, got 'maybe'"),
        (["finished=gone.jsonl"], "finished=gone.jsonl: there is no such file"),
        ([f"finished={Path(__file__).parent}"], f"finished={Path(__file__).parent}: the folder has no *.jsonl"),
        ([f"runs={__file__}"], f"runs={__file__}: {__file__} is not a folder"),
        (["block=0,1"], "block is an unknown key"),
        (["sweep=sedes"], "sweep=sedes is unknown; did you mean seeds?"),
        (["sweep=gone.yaml"], "sweep=gone.yaml: there is no such file"),
        (
            ["sweep="],
            "Which sweep?  sweep=NAME with NAME one of: algorithm, alpha, couplet, critics, factorial, "
            "factorial_signalling, grouping, k, learning, learning_magrpo, lora, regime, role_swap, seeds, signalling, "
            "smollm2, smollm2_controls, smollm2_writing, staleness, team_size, trees, views",
        ),
    ],
)
def test_a_mistake_is_answered_before_anything_runs(own: Path, arguments: list[str], said: str) -> None:
    assert said in mistake(f"sweep={own}", *arguments)


def test_a_claim_of_a_sweep_has_no_keys_of_tables(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    claim = "{claim: more, setting: a, over_metric: before, at_least: 0.1, parts: [sokoban]}"
    file.write_text(f"question: which?\nsettings: {{a: [x=1]}}\nseeds: [0]\nverdicts: [{claim}]\n")
    assert "verdicts[0]: parts, not_tested and paper are keys of a table's claims" in mistake(f"sweep={file}")


def test_a_base_gives_what_the_file_has_not(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("base: factorial\nseeds: [7]\n")
    own, base = (Options(sweep=name).file() for name in (str(file), "factorial"))
    assert own == replace(base, seeds=[7])
    file.write_text("base: factorail\nseeds: [7]\n")
    assert "base=factorail is unknown; did you mean factorial?" in mistake(f"sweep={file}")
    file.write_text("base: factorial_signalling\n")
    assert "base=factorial_signalling: that sweep has a base itself" in mistake(f"sweep={file}")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"setings": {}}, "setings is an unknown key; did you mean settings?"),
        ({"overrides": [*FILE["overrides"], "seed=3"]}, "overrides: seed cannot be given: a sweep has seeds"),
        ({"settings": {"two": ["run_dir=x"]}}, "settings.two: run_dir cannot be given: every run of a sweep has"),
        ({"settings": {}}, "settings and seeds must name at least one of each"),
        ({"seeds": 3}, "seeds: it must be a valid array, got 3"),
        ({"seeds": [0, "one"]}, "seeds[1]: it must be a valid integer, got 'one'"),
        ({"settings": {"one": None}}, "settings.one: it must be a valid array, got None"),
        ({"tuning": {"grid": [1], "seeds": [7]}}, "tuning.grid: it must be an object, got [1]"),
        ({"evaluations": ["swaped"]}, "evaluations[0]: it must be 'swapped', got 'swaped'"),
        ({"verdicts": [{"claim": "c", "setting": "six", "over": "two", "at_least": 0}]}, "setting: 'six' is unknown"),
    ],
)
def test_a_mistake_in_the_yaml_is_named(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(FILE | changes, sort_keys=False))
    assert said in mistake(f"sweep={tmp_path / 'own.yaml'}")


@pytest.mark.parametrize("key", ["question", "settings", "seeds"])
def test_a_key_that_is_missing_is_named(tmp_path: Path, key: str) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({name: value for name, value in FILE.items() if name != key}))
    assert mistake(f"sweep={tmp_path / 'own.yaml'}") == f"sweep={tmp_path / 'own.yaml'}: {key} is missing"


# ---- tuning and sealed tasks ----------------------------------------------------------------------------------------

TUNED = FILE | {
    "tuning": {"grid": {"loop.tasks_per_iteration": [2, 4], "scale.lr": [0.001]}, "seeds": [7], "overrides": []},
    "sealed": 99,
}


def write_tuned(folder: Path, **more: Any) -> Path:
    (folder / "own.yaml").write_text(yaml.safe_dump(TUNED | more, sort_keys=False))
    return folder / "own.yaml"


def test_every_setting_is_tuned_on_the_same_grid_with_other_seeds(tmp_path: Path) -> None:
    options, arguments = Options.split("sweep", [f"sweep={write_tuned(tmp_path)}", "runs=there", "seed=3"])
    tuning = plan_tuning(options, arguments)
    assert tuning is not None and tuning.folder == Path("there/sweeps/own/sokoban_shared/tuning")
    points = [("loop.tasks_per_iteration=2", "scale.lr=0.001"), ("loop.tasks_per_iteration=4", "scale.lr=0.001")]
    assert [(job.setting, job.seed, job.overrides[3:5]) for job in tuning.jobs] == [
        (setting, 7, point) for setting in ("two", "four") for point in points
    ]
    final = plan_sweep(options, arguments, {"four": list(points[1])})
    assert [(job.setting, job.seed, job.overrides[3:5]) for job in final.jobs] == [("four", 3, points[1])]
    with pytest.raises(ConfigError, match=r"is tuned: scale\.lr cannot be given"):
        plan_tuning(options, ["scale.lr=0.1"])


@pytest.mark.slow
def test_the_seeds_of_a_plan_are_those_of_runs_composed_one_by_one(own: Path) -> None:
    together = planned(f"sweep={own}", "loop.task_seed='${seed}'").jobs
    alone = [planned(f"sweep={own}", "loop.task_seed='${seed}'", f"seed={seed}").jobs for seed in (0, 1)]
    assert together == [job for setting in (0, 1) for job in (alone[0][setting], alone[1][setting])]
    assert [job.evaluation["loop.task_seed"] for job in together] == [0, 1, 0, 1]


def test_what_follows_from_a_seed_is_checked_for_each(own: Path) -> None:
    for seeds in ("0,1", "1,0"):
        said = mistake(f"sweep={own}", f"seed={seeds}", "loop.tasks_per_iteration=${seed}")
        assert "seed=0): loop.tasks_per_iteration must be a whole number of at least 1, got 0" in said
    assert "seed must be a whole number from 0 to 2^32 - 1" in mistake(f"sweep={own}", f"seed=0,{1 << 32}")


def test_mistakes_of_tuning_and_sealed_tasks(tmp_path: Path) -> None:
    sweep = f"sweep={write_tuned(tmp_path, tuning=TUNED['tuning'] | {'seeds': [1]})}"
    assert "tuning.seeds must not be among seeds" in mistake(sweep)
    sweep = f"sweep={write_tuned(tmp_path, tuning=TUNED['tuning'] | {'grid': {}})}"
    assert "tuning: grid and seeds must name at least one of each" in mistake(sweep)
    sweep = f"sweep={write_tuned(tmp_path, tuning=None)}"
    assert "at the end, but 4 of 4 runs are not finished" in mistake(sweep, "sealed=true", f"runs={tmp_path}/runs")
    assert "names no seed for its sealed tasks" in mistake(
        f"sweep={write_tuned(tmp_path, tuning=None, sealed=None)}", "sealed=true"
    )


# ---- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_but(("writing",), table_names()))
def test_every_table_plans(name: str, tmp_path: Path) -> None:
    """At one of its scales."""
    scales = [scale for scale in SCALES if scale in TableFile.read(name).scales]
    scale, runs = scales[table_names().index(name) % len(scales)], tmp_path
    options, words = Options.split("reproduce", [f"table={name}", f"scale={scale}", f"runs={runs}", "seeds=1"])
    (table,) = options.tables()
    plan = plan_table(options, table, words)
    assert plan.folder == runs / "reproduce" / name / scale and not plan.folder.exists()
    for part in plan.parts:
        settings = {job.setting for job in part.record.jobs}
        assert settings == table.settings_at(options.scale, part.part).keys()
        for job in part.record.jobs:
            assert job.completions > 0


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_the_most_that_magrpos_returns_can_be(scale: str, tmp_path: Path) -> None:
    """The points of the best program, or the sum over the turns that are judged: drafts are not."""
    options, words = Options.split("reproduce", ["table=magrpo", f"scale={scale}", f"runs={tmp_path}", "seeds=1"])
    (table,) = options.tables()
    rows = [row for row in table.rows.values() if row.metric.startswith("return")]
    checked = 0
    for part in plan_table(options, table, words).parts:
        with options.configurations():
            jobs = {job.setting: compose("train", overrides=list(job.overrides)) for job in part.record.jobs}
        for row in (row for row in rows if row.setting in jobs):
            env = jobs[row.setting].env
            judged = env.horizon - (env.order == "discussion")
            assert row.most[options.scale] == POINTS * (judged if env.turn_reward == "points" else 1), row
            checked += 1
    assert checked == (len(rows) - 1 if scale == "laptop" else 2 * len(rows)), "the laptop has no discussion"


@pytest.mark.slow
def test_other_figures_have_a_folder_of_their_own(tmp_path: Path) -> None:
    options, words = Options.split("reproduce", ["table=writing", f"runs={tmp_path}", "loop.iterations=3", "threads=1"])
    (table,) = options.tables()
    folders = [plan_table(options, table, given).folder.name for given in ([], words, words[::-1], words[:1])]
    assert folders[0] == "laptop" and folders[1] == folders[2] and len(set(folders)) == 3
    assert all(name.startswith("laptop-") for name in folders[1:])


@pytest.mark.slow
def test_runs_of_a_table_are_those_of_its_sweep(tmp_path: Path) -> None:
    options, _ = Options.split("reproduce", ["table=competitors", "seeds=1"])
    plan = plan_table(options, options.tables()[0], [])
    of_table = {job.setting: job.training for job in plan.parts[-1].record.jobs if plan.parts[-1].name == "sokoban"}
    of_table |= {job.setting: job.training for job in plan.parts[0].record.jobs if plan.parts[0].name == "sokoban"}
    sweep = plan_sweep(Options("algorithm"), [])
    assert of_table == {job.setting: job.training for job in sweep.jobs if job.seed == 0}


@pytest.mark.slow
def test_cells_of_cross_play(tmp_path: Path) -> None:
    options, _ = Options.split("reproduce", ["table=role_swap", "scale=smollm2", "seeds=3"])
    (part,) = plan_table(options, options.tables()[0], []).parts
    # Of three regimes: two exchanges of 3 seeds, each regime with the other 2 seeds, six pairs with all 3 of each.
    assert len(cells_of(part)) == 2 * 3 + 3 * 6 + 6 * 9
    options, _ = Options.split("reproduce", ["table=role_swap", "scale=paper"])
    (part,) = plan_table(options, options.tables()[0], []).parts
    # Five regimes, of which one is a single agent's: with itself it plays once per seed, of a pair of its own.
    assert len(cells_of(part)) == 2 * 3 + 3 * 6 + 21 * 9 + 3


@pytest.mark.slow
def test_the_table_s_own_summary_comes_first(tmp_path: Path) -> None:
    """It alone has the teams that were made of its runs, and other tables have some of these runs, too."""
    folder = ROOT / "docs" / "results" / "reproduction"
    options, _ = Options.split("reproduce", ["table=writing", "seeds=1", f"finished={folder}", f"runs={tmp_path}"])
    files = plan_table(options, options.tables()[0], []).parts[0].record.finished
    assert files[0] == folder / "writing_laptop.jsonl"
    assert sorted(files) == sorted(folder.glob("*.jsonl")) and len(files) > 5


def test_what_a_table_decides_cannot_be_given() -> None:
    options, _ = Options.split("reproduce", ["table=turns", "seeds=1"])
    (table,) = options.tables()
    for word, said in {
        "seed=3": r"seed cannot be given: the table decides it \(seeds=\)",
        "experiment=code_lora": "experiment cannot be given",
        "regime=shared": "table=turns varies regime; it cannot be given",
        "loop.iteration=3": r"did you mean loop.iterations\?",
        "jobz=3": r"jobz is an unknown key; did you mean jobs\?",
    }.items():
        with pytest.raises(ConfigError, match=said):
            plan_table(options, table, [word])

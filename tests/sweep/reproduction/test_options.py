"""The words of the command."""

from pathlib import Path

import pytest

from troupe.errors import ConfigError
from troupe.sweep.reproduction.options import ReproduceOptions, machine_jobs
from troupe.sweep.reproduction.table import ReproductionTable, table_names


def test_words_are_told_apart() -> None:
    words = ["table=turns", "seeds=2", "loop.completions=10", "--config-dir", "mine", "jobs=3", "runs=here"]
    options, others = ReproduceOptions.split(words)
    assert others == ["loop.completions=10"]
    assert (options.scale, options.seeds, options.jobs, options.runs) == ("laptop", (0, 1), 3, "here")
    assert options.config_dir == "mine" and not options.dry_run
    (table,) = options.tables
    assert options.seeds_of(table) == (0, 1) and options.jobs_of(table) == 3


def test_seeds() -> None:
    table = ReproductionTable.read("role_swap")
    default = ReproduceOptions.split(["table=role_swap"])[0]
    assert default.seeds_of(table) == (0, 1, 2, 3, 4) and default.jobs_of(table) == machine_jobs("laptop")
    assert ReproduceOptions.split(["table=role_swap", "seeds=[4,2]"])[0].seeds == (4, 2)


def test_the_table_s_own_summary_comes_first() -> None:
    """It alone has the teams that were made of its runs, and other tables have some of these runs, too."""
    folder = Path(__file__).parents[3] / "docs" / "results" / "reproduction"
    options, _ = ReproduceOptions.split(["table=role_swap", f"finished={folder}"])
    files = options.of_sweep(options.tables[0]).finished
    assert files[0] == str(folder / "role_swap_laptop.jsonl")
    assert sorted(files) == sorted(map(str, folder.glob("*.jsonl"))) and len(files) > 5


def test_tables_that_measure_time_run_alone() -> None:
    options, _ = ReproduceOptions.split(["table=latency", "jobs=4"])
    assert options.jobs_of(options.tables[0]) == 1


def test_all_are_those_that_have_the_scale() -> None:
    names = {table.name for table in ReproduceOptions.split(["table=all"])[0].tables}
    assert names == set(table_names())
    small = {table.name for table in ReproduceOptions.split(["table=all", "scale=smollm2"])[0].tables}
    assert "role_swap" in small and "ablation" not in small


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], r"Which table\?  table=NAME with NAME one of: ablation, .*, all"),
        (["table=role_swp"], r"table=role_swp is unknown; did you mean role_swap\?"),
        (["table=turns", "scale=lapto"], r"scale=lapto is unknown; did you mean laptop\?"),
        (["table=turns", "scale=smollm2"], "table=turns has no scale=smollm2; it has laptop, paper"),
        (["table=turns", "seeds=two"], "seeds=two must be a number of seeds, or a list"),
        (["table=turns", "seeds=0"], "at least one seed"),
        (["table=turns", "seeds=1,1"], "different whole numbers"),
        (["table=turns", "jobs=0"], "jobs must be a whole number of at least 1"),
        (["table=turns", "jobs=²"], "jobs must be a whole number of at least 1, got '²'"),
        (["table=turns", "dry_run=ture"], r"dry_run must be true or false, got 'ture'; did you mean true\?"),
        (["table=turns", f"runs={__file__}"], f"runs={__file__}: {__file__} is not a folder"),
        (["table=turns", f"runs={__file__}/below"], f"runs={__file__}/below: {__file__} is not a folder"),
        (["table=turns", "seed=3"], r"seed cannot be given: the table decides it \(seeds=\)"),
        (["table=turns", "launcher=joblib"], "launcher cannot be given"),
        (["table=turns", "--multirun"], "--multirun is no option of reproduce"),
        (["table=turns", "--config-dir"], "--config-dir names no folder"),
    ],
)
def test_a_mistake_is_named(words: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ReproduceOptions.split(words)


def test_keys_of_runs_are_checked_at_once() -> None:
    options, words = ReproduceOptions.split(["table=turns", "loop.iteration=3"])
    with pytest.raises(ConfigError, match=r"did you mean loop.iterations\?"):
        options.check(words)
    with pytest.raises(ConfigError, match="table=turns varies regime; it cannot be given"):
        options.check(["regime=shared"])
    with pytest.raises(ConfigError, match=r"sead is an unknown key; did you mean seeds\?"):
        options.check(["sead=3"])  # seed, which is nearer, cannot be given
    with pytest.raises(ConfigError, match=r"sheep is an unknown key\. docs/configuration\.md lists all keys"):
        options.check(["sheep=3"])
    options.check(["loop.iterations=3"])

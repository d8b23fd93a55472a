"""The words of the command."""

import pytest

from troupe.errors import ConfigError
from troupe.sweep.options import Options, machine_jobs
from troupe.sweep.publication_file import TableFile, table_names


def test_words_are_told_apart() -> None:
    words = ["table=turns", "seeds=2", "loop.completions=10", "--config-dir", "mine", "jobs=3", "runs=here"]
    options, others = Options.split("reproduce", words)
    assert others == ["loop.completions=10"]
    assert (options.scale, options.seeds, options.jobs, options.runs) == ("laptop", (0, 1), 3, "here")
    assert options.config_dir == "mine" and not options.dry_run
    (table,) = options.tables()
    assert options.seeds_of(table) == (0, 1) and options.jobs_of(table) == 3


def test_seeds() -> None:
    table = TableFile.read("role_swap")
    default = Options.split("reproduce", ["table=role_swap"])[0]
    assert default.seeds_of(table) == (0, 1, 2, 3, 4) and default.jobs_of(table) == machine_jobs("laptop")
    assert Options.split("reproduce", ["table=role_swap", "seeds=[4,2]"])[0].seeds == (4, 2)


def test_tables_that_measure_time_run_alone() -> None:
    options, _ = Options.split("reproduce", ["table=latency", "jobs=4"])
    assert options.jobs_of(options.tables()[0]) == 1


def test_all_are_those_that_have_the_scale() -> None:
    names = {table.name for table in Options.split("reproduce", ["table=all"])[0].tables()}
    assert names == set(table_names())
    small = {table.name for table in Options.split("reproduce", ["table=all", "scale=smollm2"])[0].tables()}
    assert "role_swap" in small and "ablation" not in small


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], r"Which table\?  table=NAME with NAME one of: ablation, .*, all"),
        (["table=role_swp"], r"table=role_swp is unknown; did you mean role_swap\?"),
        (["table=turns", "scale=lapto"], "scale: it must be 'laptop', 'smollm2' or 'paper', got 'lapto'"),
        (["table=turns", "scale=smollm2"], "table=turns has no scale=smollm2; it has laptop, paper"),
        (["table=turns", "seeds=two"], "seeds=two must be a number of seeds, or a list"),
        (["table=turns", "seeds=0"], "seeds=0 must be at least one"),
        (["table=turns", "seeds=1,1"], "different whole numbers"),
        (["table=turns", "jobs=0"], "jobs: it must be greater than or equal to 1, got '0'"),
        (["table=turns", "jobs=²"], "jobs: it must be a valid integer, .* got '²'"),
        (["table=turns", "dry_run=ture"], "dry_run: it must be a valid boolean"),
        (["table=turns", f"runs={__file__}"], f"runs={__file__}: {__file__} is not a folder"),
        (["table=turns", f"runs={__file__}/below"], f"runs={__file__}/below: {__file__} is not a folder"),
        (["table=turns", "--multirun"], "--multirun is no option of reproduce"),
    ],
)
def test_a_mistake_is_named(words: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Options.split("reproduce", words)[0].tables()

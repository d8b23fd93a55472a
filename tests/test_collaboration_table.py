"""bench/collaboration.py: the columns of MAGRPO's table, by hand."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

BENCH = runpy.run_path(str(Path(__file__).parents[1] / "bench/collaboration.py"))


def test_figures_of_a_condition() -> None:
    row = {"pass@1": 0.5, "tokens": 4000, "episodes": 100, "aux/structure": 0.1}
    row |= {"main/structure": 1.0, "main/syntax": 0.5, "main/tests": 0.25, "main/cooperation": 1.25}
    figures = BENCH["figures"](row, 2.0, [1])
    assert figures.pop("pass@1") == 0.5 and figures.pop("return") == 0.75
    assert (figures["tokens"], figures["rate"], figures["ms"]) == (40.0, 2000.0, 20.0)


def test_the_table_has_means_over_runs() -> None:
    runs = [{"pass@1": share, "tokens": tokens} for share, tokens in ((0.25, 40.0), (0.75, 40.2))]
    heads, _, *lines = BENCH["table"]({"untrained": runs[:1], "trained": runs}).splitlines()
    assert heads == "| team | runs | pass@1 | tokens per episode |"
    assert lines == ["| untrained | 1 | 0.250 | 40 |", "| trained | 2 | 0.500 (0.250 to 0.750) | 40 |"]


def test_runs_of_a_team_differ_in_their_seeds_alone(tmp_path: Path) -> None:
    def run(seed: int, **env: object) -> SimpleNamespace:
        config = {"seed": seed, "team": {"aux": "a", "main": "b"}}
        config |= {"env": {"order": "simultaneous", "horizon": 1, "feedback": "plain", **env}}
        path = tmp_path / f"{seed}{sorted(env)}"
        path.mkdir()
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        return SimpleNamespace(path=path, config=config)

    first, second, other = run(0), run(1), run(0, usage="statement")
    assert BENCH["team_of"](first.path) == "simultaneous, one turn"
    assert BENCH["team_of"](run(0, horizon=2).path) == "simultaneous, 2 turns, plain"
    BENCH["check_alike"]("team", [first, second])
    with pytest.raises(SystemExit, match=r"^team: .* differ in env\.usage; give one of them$"):
        BENCH["check_alike"]("team", [first, second, other])

"""bench/schemes.py: the table of schemes over training, by hand."""

import runpy
from pathlib import Path

TABLE = runpy.run_path(str(Path(__file__).parents[1] / "bench/schemes.py"))


def test_periods_end_with_the_shortest_run() -> None:
    names = TABLE["COLUMNS"]
    runs = [
        [
            dict.fromkeys((f"rollout/main/{name}" for name in names), 0.0) | {"rollout/main/decorator": share}
            for share in shares
        ]
        for shares in ((0.5, 0.6, 0.8), (0.7, 0.8, 0.8, 1.0))
    ]
    heads, _, *lines = TABLE["table"](runs).splitlines()
    assert heads.split(" | ")[1:3] == ["decorator", "coordinator"]
    zeros = " | 0.000" * (len(names) - 1) + " |"
    assert lines == [f"| 1 | 0.600 (0.500 to 0.700){zeros}", f"| 2 to 3 | 0.750 (0.700 to 0.800){zeros}"]

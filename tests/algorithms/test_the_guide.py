"""The examples of docs/add_an_algorithm.md work as they are printed, and docs/algorithms.md knows every algorithm."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from troupe.experience import Episode

ROOT = Path(__file__).parents[2]
ALGORITHMS = sorted(file.stem for file in (ROOT / "configs" / "algorithm").glob("*.yaml"))


def blocks(language: str) -> list[str]:
    text = (ROOT / "docs" / "add_an_algorithm.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def defined(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "add_an_algorithm.md", "exec", dont_inherit=True), names)
    return names


def test_the_rule(tree: Callable[..., Episode]) -> None:
    rule = defined(blocks("python")[0])["Median"]()
    rule.check(4, "tree")
    episode = tree(("tool", 0, [0, 1, 2, 9]), ("plan", 0, [1, 1]))
    rule([episode])
    assert [candidate.advantage for _, candidate in episode.candidates()] == [-1.5, -0.5, 0.5, 7.5, 0, 0]


def test_its_test(tree: Callable[..., Episode]) -> None:
    names = defined(blocks("python")[0])
    exec(blocks("python")[2], names)
    names["test_by_hand"](tree)


def test_its_yaml() -> None:
    parts = {entry.split("@")[0] for entry in yaml.safe_load(blocks("yaml")[0])["defaults"] if "@" in entry}
    assert all((ROOT / "configs" / "algorithm" / f"{part}.yaml").is_file() for part in parts) and len(parts) == 3


def test_the_objective() -> None:
    # At ratio 1 and tau 2: 4 / 2 * sigmoid(0) = 1, times A; its slope in the log-probability is 4 * 1/4 = 1.
    objective = defined(blocks("python")[1])["Soft"](tau=2.0)
    now = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    rest = (
        torch.zeros(1, 2),
        torch.zeros(1, 2),
        torch.tensor([3.0]),
        torch.ones(1),
        torch.ones(1, 2, dtype=torch.bool),
    )
    loss = objective(now, *rest).loss
    loss.backward()
    assert loss.item() == pytest.approx(-3)
    assert now.grad is not None and now.grad.tolist() == [pytest.approx([-1.5, -1.5])]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_in_the_table(algorithm: str) -> None:
    names = re.findall(
        r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", (ROOT / "docs/algorithms.md").read_text(), re.M))
    )
    suffixes = [f"at_grpo{name}" for name in names if name.startswith("_")]
    assert algorithm in names + suffixes, f"add a line for `{algorithm}` to the table in docs/algorithms.md"

"""``troupe COMMAND``: commands, their alias, and what is imported when."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

from troupe.cli import main as module
from troupe.cli.main import COMMANDS, main

HEAVY = {"torch", "transformers", "lightning", "hydra", "omegaconf", "rich", "numpy", "scipy"}


@pytest.fixture
def troupe(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``troupe("train", "key=value")``: the command line in this process."""

    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["troupe", *words])
        main()

    return run


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The commands that ``main`` calls, with their arguments; none of them runs."""
    calls: list[tuple[str, list[str]]] = []

    class Command:
        def __init__(self, name: str, package: str) -> None:
            self.name = f"{package}{name}"

        def main(self, arguments: list[str]) -> None:
            calls.append((self.name, arguments))

    monkeypatch.setattr(module, "import_module", Command)
    return calls


def test_every_command_is_a_module_of_its_name() -> None:
    files = {file.stem for file in Path(module.__file__).parent.glob("*.py")} - {"__init__", "main"}
    assert {name.replace("-", "_") for name in COMMANDS} == files
    for name in files:
        assert callable(import_module(f"troupe.cli.{name}").main)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_gets_the_words_after_it(
    troupe: Callable[..., None], called: list[tuple[str, list[str]]], name: str
) -> None:
    troupe(name, "a=b", "--flag", "train")
    assert called == [(f"troupe.cli.{name.replace('-', '_')}", ["a=b", "--flag", "train"])]


@pytest.mark.parametrize("first", ["experiment=sokoban_shared", "+a=b", "~team.plan", "--multirun", "--config-dir"])
def test_words_for_hydra_train(troupe: Callable[..., None], called: list[tuple[str, list[str]]], first: str) -> None:
    troupe(first, "seed=1")
    assert called == [("troupe.cli.train", [first, "seed=1"])]


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]], ids=str)
def test_help_lists_the_commands(
    troupe: Callable[..., None], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    troupe(*words)
    out = capsys.readouterr().out
    assert out.startswith("usage: troupe COMMAND")
    assert all(f"\n  {name} " in out for name in COMMANDS)


def test_version(troupe: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    troupe("--version")
    assert capsys.readouterr().out == f"troupe {version('troupe')}\n"


@pytest.mark.parametrize(("word", "near"), [("trian", "train"), ("evaluate", "eval"), ("warm_start", "warm-start")])
def test_an_unknown_command_is_answered_with_the_nearest_and_all(
    troupe: Callable[..., None], word: str, near: str
) -> None:
    with pytest.raises(SystemExit) as end:
        troupe(word)
    assert end.value.code == (
        f"error: unknown command '{word}'; did you mean {near}? "
        "Known: train, eval, serve, sweep, report, compare, warm-start"
    )
    with pytest.raises(SystemExit, match=r"unknown command ''\. Known: train"):
        troupe("")


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["trian"]], ids=str)
def test_nothing_heavy_is_imported_before_the_command_is_known(words: list[str]) -> None:
    code = "import sys; from troupe.cli.main import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)
    modules = set(done.stderr.split())
    assert "troupe.cli.main" in modules and not modules & HEAVY


def test_python_m_troupe_is_the_same_command(tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "troupe"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"troupe {version('troupe')}\n"
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stderr.startswith(f"error: {tmp_path / 'a'} holds no evaluation")

"""The Makefile's manners.  Nothing here installs or trains: targets are listed, refused or printed (``make -n``)."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INTERNAL = {"experiment-given", "run-given", "evaluation-given", "pair-given", "sweep-given"}
PHONY = {*re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()} - INTERNAL

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str, venv: str) -> subprocess.CompletedProcess[str]:
    """Run make apart from a make that may run this test, on a ``.venv`` that is not there and cannot be made."""
    apart = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
    apart |= {"exp", "scale", "args", "jobs", "run", "a", "b", "sweep", "launcher"}
    environment = {name: value for name, value in os.environ.items() if name not in apart}
    command = ["make", *arguments, f"VENV={venv}", "PYTHON=false"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def venv(tmp_path: Path) -> str:
    return str(tmp_path / "venv")


@pytest.mark.parametrize("arguments", [[], ["help"]], ids=["default", "help"])
def test_help_lists_every_target(arguments: list[str], venv: str) -> None:
    done = make(*arguments, venv=venv)
    assert done.returncode == 0
    assert set(re.findall(r"^  make (\S+)", done.stdout, re.MULTILINE)) == PHONY


def test_train_without_an_experiment_lists_those_there_are(venv: str) -> None:
    done = make("train", venv=venv)
    assert done.returncode == 2
    assert "make train exp=NAME" in done.stderr
    listed = re.findall(r"^  (\S+)$", done.stderr, re.MULTILINE)
    assert sorted(listed) == sorted(file.stem for file in (ROOT / "configs/experiment").glob("*.yaml"))
    assert "Installing" not in done.stdout


def test_train_hands_its_words_to_troupe(venv: str) -> None:
    done = make("-n", "train", "exp=some_experiment", "scale=laptop", "args=seed=3 loop.iterations=2", venv=venv)
    assert done.returncode == 0
    last = done.stdout.splitlines()[-1]
    assert last.split() == f"{venv}/bin/troupe experiment=some_experiment scale=laptop seed=3 loop.iterations=2".split()


def test_eval_and_compare_hand_their_words_on(venv: str) -> None:
    words = {
        ("eval", "run=runs/x", "args=samples=4 swap=true"): "troupe.cli.evaluate run=runs/x samples=4 swap=true",
        ("eval", "exp=sokoban_shared"): "troupe.cli.evaluate exp=sokoban_shared",
        ("compare", "a=runs/x", "b=runs/y@greedy"): "troupe.cli.compare runs/x runs/y@greedy",
    }
    for arguments, expected in words.items():
        last = make("-n", *arguments, venv=venv).stdout.splitlines()[-1]
        assert last.split() == [f"{venv}/bin/python", "-m", *expected.split()]


@pytest.mark.parametrize("arguments", [["eval"], ["compare"], ["compare", "a=runs/x"]], ids=" ".join)
def test_eval_and_compare_ask_for_what_is_missing(arguments: list[str], venv: str) -> None:
    done = make(*arguments, venv=venv)
    assert done.returncode == 2
    assert f"make {arguments[0]} " in done.stderr
    assert "Installing" not in done.stdout


def test_report_hands_the_run_on(venv: str) -> None:
    done = make("-n", "report", "run=runs/mine", venv=venv)
    assert done.stdout.splitlines()[-1] == f"{venv}/bin/python -m troupe.cli.report runs/mine"


def test_sweep_without_a_name_lists_those_there_are(venv: str) -> None:
    done = make("sweep", venv=venv)
    assert done.returncode == 2
    assert "make sweep sweep=NAME" in done.stderr
    listed = re.findall(r"^  (\S+)$", done.stderr, re.MULTILINE)
    assert sorted(listed) == sorted(file.stem for file in (ROOT / "configs/sweep").glob("*.yaml"))


def test_sweep_hands_its_words_on(venv: str) -> None:
    done = make("-n", "sweep", "sweep=seeds", "exp=some_experiment", "launcher=joblib", "args=seed=0,1", venv=venv)
    assert done.returncode == 0
    said = done.stdout.replace("\\\n", " ").splitlines()[-1].split()
    words = "-m troupe.cli.sweep sweep=seeds experiment=some_experiment launcher=joblib seed=0,1".split()
    assert said == [f"{venv}/bin/python", *words]


def test_train_sets_up_the_core_only_and_tests_the_tools_too(venv: str) -> None:
    train = make("-n", "train", "exp=some_experiment", venv=venv).stdout
    assert "install -c constraints.txt -e ." in train and "[dev]" not in train
    assert "install -c constraints.txt -e '.[dev]'" in make("-n", "test", venv=venv).stdout


def test_a_python_too_old_is_refused_before_anything_is_installed(venv: str) -> None:
    done = make("setup", venv=venv)
    assert done.returncode == 2
    assert "3.11" in done.stderr
    assert not Path(venv).exists()


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")], ids=str)
def test_pages_name_targets_that_exist(page: Path) -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z_]+)", page.read_text(), re.MULTILINE))
    assert named <= PHONY

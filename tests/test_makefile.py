"""What make does.  Nothing here installs or trains: targets are listed, refused or printed (``make -n``)."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INTERNAL = {"need-exp", "need-run", "need-runs", "need-team", "need-seat", "need-pair", "need-sweep", "need-table"}
PHONY = {*re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()} - INTERNAL

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str, venv: str) -> subprocess.CompletedProcess[str]:
    """Run make apart from a make that may run this test, on a ``.venv`` that is not there and cannot be made."""
    apart = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
    apart |= {"exp", "env", "scale", "args", "jobs", "run", "runs", "out", "a", "b", "sweep", "table"}
    apart |= {"launcher", "base"}
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
    assert "make train exp=WORLD_REGIME" in done.stderr
    listed = re.findall(r"^  (\S+)$", done.stderr, re.MULTILINE)
    assert listed == [
        file.stem for group in ("env", "regime") for file in sorted((ROOT / "configs" / group).glob("*.yaml"))
    ]
    assert "Installing" not in done.stdout


def words(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Of the last command that make prints, as a shell splits it."""
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout.replace("\\\n", " ").splitlines()[-1])


COMMANDS = {
    ("train", "exp=e", "scale=laptop", "args=seed=3 loop.iterations=2"): (
        "train experiment=e scale=laptop seed=3 loop.iterations=2"
    ),
    ("eval", "run=runs/x", "args=samples=4 swap=true"): "eval run=runs/x samples=4 swap=true",
    ("eval", "exp=sokoban_shared", "tasks=5"): "eval exp=sokoban_shared tasks=5",
    ("play", "run=runs/x", "human=tool", "args=tasks=2"): "play run=runs/x human=tool tasks=2",
    ("play", "env=sokoban", "args=human=[tool,plan]"): "play env=sokoban human=[tool,plan]",
    ("push-to-hub", "run=runs/x", "repo=me/team"): "push-to-hub run=runs/x repo=me/team",
    ("compare", "a=runs/x", "b=runs/y@greedy"): "compare runs/x runs/y@greedy",
    ("report", "run=runs/mine"): "report runs/mine",
    ("report", "runs=runs/a runs/b", "out=x.html"): "report runs/a runs/b --out x.html",
    ("replay", "run=runs/x", "episode=test_00001/0", "turn=2", "agents.plan=base"): (
        "replay run=runs/x agents.plan=base turn=2 episode=test_00001/0"
    ),
    ("runs",): "runs",
    ("runs", "dir=here there"): "runs here there",
    ("reproduce", "table=writing", "scale=smollm2", "seeds=2", "args=jobs=1"): (
        "reproduce table=writing scale=smollm2 seeds=2 jobs=1"
    ),
    ("sweep", "sweep=seeds", "exp=e", "launcher=joblib", "args=seed=0,1"): (
        "sweep sweep=seeds experiment=e launcher=joblib seed=0,1"
    ),
}


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_targets_call_their_commands(arguments: tuple[str, ...], venv: str) -> None:
    assert words(make("-n", *arguments, venv=venv)) == [f"{venv}/bin/troupe", *COMMANDS[arguments].split()]


def test_serve_runs_where_vllm_is(venv: str) -> None:
    done = make("-n", "serve", "run=runs/x", "port=8001", f"VLLM_VENV={venv}", venv=venv)
    assert words(done) == [f"{venv}/bin/troupe", "serve", "run=runs/x", "port=8001"]


def test_variables_that_make_does_not_know_are_settings(venv: str) -> None:
    settings = ["loop.iterations=1", "seed=3", "+a.b=[1,2]", "name='two words'", "note=two words", "run_dir=a${seed}/b"]
    done = make("-n", "train", "exp=e", *settings, "args=x=y", venv=venv)
    command, name, *rest = words(done)
    assert (command, name) == (f"{venv}/bin/troupe", "train")
    assert sorted(rest) == sorted(["experiment=e", "x=y", *settings])


def test_another_target_s_variable_is_not_swallowed(venv: str) -> None:
    assert words(make("-n", "train", "exp=e", "sweep=seeds", venv=venv))[2:] == ["experiment=e", "sweep=seeds"]
    assert words(make("-n", "train", "experiment=e", "seed=1", venv=venv))[2:] == ["experiment=e", "seed=1"]


@pytest.mark.parametrize("target", [["train", "exp=e"], ["sweep", "sweep=seeds"]], ids=" ".join)
@pytest.mark.parametrize("setting", ["engine=vllm", "args=seed=1 engine=vllm"])
def test_vllm_trains_in_its_own_environment(target: list[str], setting: str, venv: str, tmp_path: Path) -> None:
    places = {name: str(tmp_path / name) for name in ("VLLM_VENV", "GPU_VENV")}
    expected = places["GPU_VENV" if shutil.which("nvidia-smi") else "VLLM_VENV"]
    done = make("-n", *target, setting, *(f"{name}={place}" for name, place in places.items()), venv=venv)
    assert words(done)[0] == f"{expected}/bin/troupe"
    assert "engine=vllm" in words(done)
    assert f"-m venv {expected}" in done.stdout and f"-m venv {venv}" not in done.stdout
    plain = make("-n", *target, "engine=torch", *(f"{name}={place}" for name, place in places.items()), venv=venv)
    assert words(plain)[0] == f"{venv}/bin/troupe"


@pytest.mark.parametrize("setting", ["strategy=deepspeed_zero2", "args=seed=1 strategy=deepspeed_zero3"])
def test_a_strategy_of_deepspeed_installs_it(setting: str, venv: str) -> None:
    done = make("-n", "train", "exp=e", setting, venv=venv)
    assert words(done)[0] == f"{venv}/bin/troupe" and ".[dev,deepspeed]" in done.stdout
    assert "deepspeed]" not in make("-n", "train", "exp=e", "strategy=ddp", venv=venv).stdout


@pytest.mark.parametrize("given", ["", "--clock cpu", "--only rollout_vs_vllm_cpu"])
def test_bench_measures_vllm_in_its_own_environment(given: str, venv: str, tmp_path: Path) -> None:
    places = {"peers": venv, "vllm": str(tmp_path / "vllm")}
    done = make("-n", "bench", f"args={given}", f"VLLM_VENV={places['vllm']}", venv=venv)
    commands = [line.strip() for line in done.stdout.splitlines() if "bench/compare.py" in line]
    assert commands == [
        f"{place}/bin/python bench/compare.py --part {part} {given}".strip() for part, place in places.items()
    ]


@pytest.mark.parametrize(
    "arguments",
    [["eval"], ["play"], ["replay"], ["push-to-hub"], ["compare"], ["compare", "a=runs/x"], ["report"], ["serve"]],
    ids=" ".join,
)
def test_a_target_asks_for_what_is_missing(arguments: list[str], venv: str) -> None:
    done = make(*arguments, f"VLLM_VENV={venv}", venv=venv)
    assert done.returncode == 2
    assert f"make {arguments[0]} " in done.stderr
    assert "Installing" not in done.stdout


@pytest.mark.parametrize(("words", "unknown"), [(["trian", "exp=x"], "trian"), (["help", "dry_run"], "dry_run")])
def test_an_unknown_target_is_named_before_anything_is_run(words: list[str], unknown: str, venv: str) -> None:
    done = make(*words, venv=venv)
    assert done.returncode == 2 and not done.stdout
    assert f"There is no target '{unknown}'; make help lists those that there are" in done.stderr


def test_sweep_without_a_name_lists_those_there_are(venv: str) -> None:
    done = make("sweep", venv=venv)
    assert done.returncode == 2
    assert "make sweep sweep=NAME" in done.stderr
    listed = re.findall(r"^  (\S+)$", done.stderr, re.MULTILINE)
    assert sorted(listed) == sorted(file.stem for file in (ROOT / "configs/sweep").glob("*.yaml"))


def test_reproduce_without_a_table_lists_those_there_are(venv: str) -> None:
    done = make("reproduce", venv=venv)
    assert done.returncode == 2
    assert "make reproduce table=NAME" in done.stderr
    listed = re.findall(r"^  (\S+)$", done.stderr, re.MULTILINE)
    assert sorted(listed) == sorted(["all", *(file.stem for file in (ROOT / "configs/reproduce").glob("*.yaml"))])


def test_train_sets_up_the_core_only_and_tests_the_tools_too(venv: str) -> None:
    train = make("-n", "train", "exp=some_experiment", venv=venv).stdout
    assert "install -c constraints.txt -e ." in train and "[dev]" not in train
    assert "install -c constraints.txt -e '.[dev,trackio]'" in make("-n", "test", venv=venv).stdout


def test_a_python_too_old_is_refused_before_anything_is_installed(venv: str) -> None:
    done = make("setup", venv=venv)
    assert done.returncode == 2
    assert "3.11" in done.stderr
    assert not Path(venv).exists()


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")], ids=str)
def test_pages_name_targets_that_exist(page: Path) -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z0-9_-]+)", page.read_text(), re.MULTILINE))
    assert named <= PHONY


def test_paths_of_tests_in_the_makefile_exist() -> None:
    named = re.findall(r"\btests/\S+", (ROOT / "Makefile").read_text())
    assert named and all((ROOT / path).exists() for path in named)

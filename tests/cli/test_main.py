"""``troupe COMMAND``: commands, their alias, and what is imported when."""

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from troupe.cli import main as module
from troupe.cli.main import COMMANDS, CONFIGURED, loading, main

HEAVY = {"torch", "transformers", "lightning", "peft", "hydra", "omegaconf", "rich", "numpy", "scipy"}


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

        def start(self, name: str, arguments: list[str]) -> None:
            calls.append((f"{self.name} {name}", arguments))

    monkeypatch.setattr(module, "import_module", Command)
    return calls


def test_every_command_is_a_module_of_its_name() -> None:
    files = {file.stem for file in Path(module.__file__).parent.glob("*.py")} - {
        "__init__",
        "main",
        "several_evaluations",
        "start",
    }
    assert {name.replace("-", "_") for name in COMMANDS} == files
    for name in COMMANDS:
        command = import_module(f"troupe.cli.{name.replace('-', '_')}")
        assert callable(getattr(command, "run_command" if name in CONFIGURED else "main"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_gets_the_words_after_it(
    troupe: Callable[..., None], called: list[tuple[str, list[str]]], name: str
) -> None:
    troupe(name, "a=b", "--flag", "train")
    file = f"start {name}" if name in CONFIGURED else name.replace("-", "_")
    assert called == [(f"troupe.cli.{file}", ["a=b", "--flag", "train"])]


@pytest.mark.parametrize("first", ["experiment=sokoban_shared", "+a=b", "~team.plan", "--multirun", "--config-dir"])
def test_words_for_hydra_train(troupe: Callable[..., None], called: list[tuple[str, list[str]]], first: str) -> None:
    troupe(first, "seed=1")
    assert called == [("troupe.cli.start train", [first, "seed=1"])]


@pytest.mark.parametrize(("command", "key"), [("sweep", "experiment"), ("train", "experiment"), ("eval", "exp")])
@pytest.mark.parametrize("word", ["exp", "experiment"])
def test_an_experiment_has_two_keys(
    troupe: Callable[..., None], called: list[tuple[str, list[str]]], command: str, key: str, word: str
) -> None:
    troupe(command, f"{word}=sokoban_specialized", "experiments=1")
    assert called[0][1] == [f"{key}=sokoban_specialized", "experiments=1"]


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]], ids=str)
def test_help_lists_the_commands(
    troupe: Callable[..., None], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    troupe(*words)
    out = capsys.readouterr().out
    assert out.startswith("usage: troupe COMMAND")
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(troupe: Callable[..., None], capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as end:
        troupe(command, "run=nowhere", "--help")
        sys.exit(0)  # the commands that are configured return
    assert end.value.code == 0
    out, err = capsys.readouterr()
    assert f"troupe {command}" in out and not err, out


def test_version(troupe: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    troupe("--version")
    assert capsys.readouterr().out == f"troupe {version('troupe-rl')}\n"


@pytest.mark.parametrize(
    "words",
    [
        *(["--help"], ["train", "--help"], ["sweep", "-h"], ["runs", "."]),
        *(["train", "seed=1", "--cfg=job"], ["-cjob"], ["-i"], ["train", "experiment=sokoban_shared", "dry_run=true"]),
    ],
    ids=" ".join,
)
def test_a_reader_that_ends_first_ends_a_command_in_silence(tmp_path: Path, words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)  # so that the first write fails
    done = subprocess.run(
        [sys.executable, "-m", "troupe", *words], stdout=write, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    os.close(write)
    assert not done.stderr and done.returncode in (128 + signal.SIGPIPE, -signal.SIGPIPE)


def test_another_broken_pipe_is_an_error(troupe: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    def main(arguments: list[str]) -> None:
        read, write = os.pipe()  # a worker's, that has ended
        os.close(read)
        os.write(write, b"task")

    monkeypatch.setattr(module, "import_module", lambda *name: SimpleNamespace(main=main))
    with pytest.raises(SystemExit, match=r"^error: \[Errno 32\] Broken pipe$"):
        troupe("sweep")


@pytest.mark.parametrize("words", ["--help", "runs nowhere"])
def test_without_a_standard_output_a_command_ends_as_with_one(words: str, tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m troupe {words}"
    ends = [
        subprocess.run(["sh", "-c", f"{command} {output}"], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        for output in (">/dev/null", ">&-")
    ]
    assert (ends[0].returncode, ends[0].stderr) == (ends[1].returncode, ends[1].stderr)


@pytest.mark.parametrize(("word", "near"), [("trian", "train"), ("evaluate", "eval"), ("warm_start", "warm-start")])
def test_an_unknown_command_is_answered_with_the_nearest_and_all(
    troupe: Callable[..., None], word: str, near: str
) -> None:
    with pytest.raises(SystemExit) as end:
        troupe(word)
    assert end.value.code == (
        f"error: unknown command '{word}'; did you mean {near}? "
        "Known: train, eval, play, replay, push-to-hub, serve, gateway, sweep, reproduce, runs, watch, report, "
        "compare, new, warm-start"
    )
    with pytest.raises(SystemExit, match=r"unknown command ''\. Known: train"):
        troupe("")


WRONG = {
    ("--version",): "troupe ",
    ("--help",): "usage: troupe",
    ("eval", "--help"): "run: null             # a run directory",
    ("play", "-h"): "human: []             # agents whose messages you write",
    ("train", "--help"): "logger: csv, jsonl, tensorboard, trackio, wandb",
    ("trian",): "unknown command 'trian'; did you mean train?",
    ("report", "nowhere"): "nowhere is not a run directory",
    ("compare", "a", "b"): "a: there is no such folder",
    ("runs", "nowhere"): "nowhere: there is no such folder",
    ("new", "no-name"): "'no-name' cannot be the name of a Python package",
    ("train", "experiment=sokoban_sharde"): "did you mean sokoban_shared?",
    ("train", "sokoban_sharde"): "experiment=sokoban_sharde is unknown; did you mean sokoban_shared?",
    ("eval", "runs/nowhere"): "runs/nowhere is not a run directory",
    ("play", "sokoban_sharde"): "experiment=sokoban_sharde is unknown; did you mean sokoban_shared?",
    ("sweep", "sedes"): "sweep=sedes is unknown; did you mean seeds?",
    ("train", "experiment=sokoban_specialized", "policies.nobody.tuning=lora"): "did you mean policies.tool.tuning?",
    ("train", "experiment=sokoban_specialized", "team.plan=plannr"): "to policy 'plannr', but policies has tool, plan",
    ("train", "experiment=sokoban_specialized", "+team.plannr=tool"): "agent 'plannr', but the world's agents are",
    ("play", "exp=sokoban_specialized", "human=plannr"): "the world has no agent 'plannr'; did you mean plan?",
    ("eval", "exp=sokoban_specialized", "silence=[tool,plannr]"): "silence=plannr: the world has no agent 'plannr'",
    ("eval", "exp=sokoban_specialized", "agents.plannr=base"): "agents.plannr: the world has no agent 'plannr'",
    ("train", "--config-dir", ".", "loop.iteration=3"): "did you mean loop.iterations?",
    ("train", "--loop.iterations", "3"): "a key is given as loop.iterations=VALUE",
    ("eval", "exp=sokoban_sharde"): "did you mean sokoban_shared?",
    ("play", "env=sokoban", "hman=tool"): "hman is an unknown key; did you mean human?",
    ("play", "run=nowhere"): "run: nowhere is not a run directory",
    ("replay", "run=nowhere", "turn=1"): "run: nowhere is not a run directory",
    ("replay", "canddate=1"): "canddate is an unknown key; did you mean candidate?",
    ("push-to-hub", "run=nowhere", "repo=me/team"): "run: nowhere is not a run directory",
    ("play", "env=sokobn"): "env=sokobn is unknown; did you mean sokoban?",
    ("warm-start", "env=sokobn"): "env=sokobn is unknown; did you mean sokoban?",
    ("serve", "run=nowhere"): "run: nowhere is not a run directory",
    ("sweep", "sweep=sedes"): "did you mean seeds?",
    ("sweep", "sweep=seeds", "experiment=sokoban_sharde"): "did you mean sokoban_shared?",
    ("reproduce", "table=role_swp"): "did you mean role_swap?",
    ("reproduce", "table=ablation", "scale=smollm2"): "table=ablation has no scale=smollm2; it has laptop, paper",
    ("reproduce", "table=turns", "loop.iteration=3"): "did you mean loop.iterations?",
}
"""Command lines without work, and a part of the answers."""


@pytest.mark.slow
def test_a_command_line_without_work_imports_nothing_heavy(tmp_path: Path) -> None:
    """All in one process, whose modules only grow; those with Hydra last."""
    code = """import json, sys
from troupe.cli.main import main
for words, answer in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        print(end.code)
    print(words, "imports", *(name for name in sys.modules if "." not in name))
"""
    words = json.dumps([[list(words), answer] for words, answer in WRONG.items()])
    command = [sys.executable, "-c", code, words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = done.stdout
    for words, answer in WRONG.items():
        before, imports, answers = answers.partition(f"{list(words)} imports")
        assert answer in before and imports, done.stdout
        modules, _, answers = answers.partition("\n")
        composed = words[0] in (*CONFIGURED, "sweep", "reproduce", "warm-start") and words[1] not in ("--help", "-h")
        hydra = {"hydra", "omegaconf"} if composed else set()
        assert set(modules.split()) & HEAVY <= hydra, words


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment", ["sokoban_specialized", "code_collab_lora scale=coder", "math_lora scale=paper_8b"]
)
def test_a_dry_run_imports_nothing_that_only_training_needs(experiment: str, tmp_path: Path) -> None:
    code = """import sys
from troupe.cli.main import main
main()
print("imports", *(name for name in sys.modules))
"""
    words = ["train", *f"experiment={experiment}".split(), "dry_run=true"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    plan, _, modules = done.stdout.rpartition("imports")
    assert "completions of" in plan
    heavy = {"lightning", "transformers", "peft", "scipy", "huggingface_hub", "matplotlib", "torch._dynamo"}
    if "scale" in experiment:  # whether the hub's cache has the base
        heavy.remove("huggingface_hub")
    assert not heavy & set(modules.split())


def test_imports_that_take_long_are_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a log."""
    with loading(after_s=0.0):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with loading(after_s=0.0):
        while not capsys.readouterr().err.startswith("loading the libraries, which takes some seconds ..."):
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_shell_is_answered_with_the_keys_of_training(tmp_path: Path) -> None:
    def answer(*words: str, line: str = "") -> tuple[str, str]:
        command, environment = [sys.executable, "-m", "troupe", *words], os.environ | {"COMP_LINE": line}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return done.stdout.strip(), done.stderr.strip()

    assert answer("-sc", "query=bash", line="troupe loop.iter") == ("loop.iterations=", "")
    assert answer("--shell-completion")[1].startswith("error: --shell-completion needs install=bash")


@pytest.mark.slow
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(tmp_path: Path) -> None:
    # Another thread may take the signal, whose handler then runs a little later.
    text = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    (tmp_path / "torch.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "troupe", "train", "dry_run=true"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_python_m_troupe_is_the_same_command(tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "troupe"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"troupe {version('troupe-rl')}\n"
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stderr.startswith(f"error: {tmp_path / 'a'}: there is no such folder")

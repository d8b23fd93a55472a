"""`troupe warm-start`: from a world to a base model that trains."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from troupe.cli.warm_start import main
from troupe.models.bases.loading import load_model, load_tokenizer

SMALL = ["hidden=16", "layers=1", "heads=2", "batch_size=8", "warmup=1"]


@pytest.fixture
def warm_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """``warm_start("key=value", ...)`` in an empty folder: what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        main([*words, *SMALL])
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_a_world_gets_a_base_model(warm_start: Callable[..., str], tmp_path: Path) -> None:
    first = warm_start("env=couplet", "steps=4", "until=2", "validation_tasks=4")
    assert "stopped after step 2 of 4; the same command continues" in first and not Path("bases/couplet").exists()
    second = warm_start("env=couplet", "steps=4", "validation_tasks=4")
    assert "2 of them done" in second and "bases/couplet is finished" in second
    assert "success on 4 validation tasks: 0.00 (0.00-0.49) sampled" in second
    assert "\ngreedy messages that are one of 8 of an expert's: first 0%, second 0%\n" in second
    words = "env=couplet policies.first.base=bases/couplet policies.second.base=bases/couplet"
    assert second.endswith(f"train with it:\n  troupe train {words}\n")
    assert not Path("bases/couplet.partial").exists()
    tokenizer = load_tokenizer("bases/couplet")
    assert load_model("bases/couplet").config.vocab_size == len(tokenizer) and tokenizer.unk_token_id is None
    third = warm_start("env=couplet", "steps=4", "validation_tasks=4")
    assert third.startswith("bases/couplet is finished; again=true makes it anew")


@pytest.mark.slow
def test_a_world_with_a_sandbox_gets_one_too(warm_start: Callable[..., str]) -> None:
    """Its sandbox is closed and used again, here and in the process that asks the demonstrators."""
    out = warm_start("experiment=code_specialized", "env.split=structure", "steps=2", "validation_tasks=2", "out=base")
    assert "base is finished" in out and "success on 2 validation tasks" in out


def test_messages_that_a_policy_would_cut_are_told(warm_start: Callable[..., str]) -> None:
    out = warm_start("env=couplet", "steps=1", "validation_tasks=0", "vocabulary=262")
    message = (
        r"policies\.second\.sampling\.train\.max_tokens=12 cuts its messages, which have up to \d\d tokens; raise it"
    )
    assert re.search(message, out)


@pytest.mark.slow
def test_another_model_is_not_overwritten(warm_start: Callable[..., str]) -> None:
    warm_start("env=couplet", "steps=1", "validation_tasks=0")
    with pytest.raises(SystemExit, match=r"bases/couplet is of a warm start with .*; again=true replaces it"):
        warm_start("env=couplet", "env.horizon=1", "steps=1", "validation_tasks=0")
    assert "is finished: " in warm_start("env=couplet", "env.horizon=1", "steps=1", "validation_tasks=0", "again=true")


def test_a_wrong_word_ends_it_in_one_line(warm_start: Callable[..., str]) -> None:
    with pytest.raises(SystemExit, match=r"^error: step=1 is no setting of warm-start; did you mean steps\?"):
        warm_start("env=couplet", "step=1")


@pytest.mark.slow
def test_ctrl_c_keeps_the_steps_and_the_same_command_continues(tmp_path: Path) -> None:
    words = ["-m", "troupe", "warm-start", "env=couplet", "steps=100000", "validation_tasks=0", *SMALL]
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None and "100000 steps" in process.stdout.readline()
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while workers.exists() and not workers.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    signal_group(process)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "Traceback" not in err
    assert out.startswith("stopped after step ") and out.endswith(" of 100000; the same command continues\n")
    assert (tmp_path / "bases/couplet.partial/state.pt").is_file()


def signal_group(process: subprocess.Popen[str]) -> None:
    """SIGINT to every process of the terminal, as Ctrl-C sends it."""
    os.killpg(process.pid, signal.SIGINT)

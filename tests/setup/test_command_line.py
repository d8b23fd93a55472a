"""Overrides of a command line: a wrong one is named before a run is composed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from troupe.errors import ConfigError
from troupe.setup.command_line import check_command_line, fail
from troupe.setup.unknown import CHOICES


@pytest.mark.parametrize(
    "words",
    [
        ["env=code", "regime=shared", "policies.shared.optimizer.lr=1e-3"],
        ["env=mixed", "regime=single", "scale=paper_8b"],
        ["experiment=sokoban_specialized", "policy@policies.tool=[laptop,remote]", "policies.tool.remote.model=m"],
        ["+policies.tool.optimizer.fused=true", "~policies.plan", "++world.size=3", "hydra.job.name=x"],
        ["logger=[csv,wandb]", "logger.wandb.mode=x"],
        ["--multirun", "env=code,couplet", "regime=choice(shared,lora)", "policies.tester.base=x"],
        ["--config-name", "mine", "anything=1"],
    ],
    ids=" ".join,
)
def test_words_that_are_left_to_hydra_or_right(words: list[str]) -> None:
    check_command_line("train", words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["policies.tol.optimizer.lr=1"],
            r"policies\.tol\.optimizer\.lr is an unknown key; did you mean policies",
        ),
        (["regime=shared", "policies.tool.base=x"], r"policies\.tool\.base is an unknown key; did you mean policies\."),
        (["policy@policies.tol=[laptop,frozen]"], r"Could not override 'policy@policies\.tol'\. Did you mean"),
        (["policy@policies.tool=[laptop,frozn]"], r"policy=frozn is unknown; did you mean frozen\?"),
        (["env=couplet", "regime=single"], r"regime=single: env=couplet has no variant with one agent"),
        (["env=couplet", "scale=paper_8b"], r"scale=paper_8b: env=couplet does not have this scale\. .*: laptop$"),
        (
            ["regime=[shared,lora]"],
            r"regime=\[shared,lora\]: a run has one regime\. Give regime=NAME",
        ),
        (["+env=code"], r"\+env=code: a run has one env"),
        (["~scale"], r"~scale: a run has one scale"),
        (["seed=[1"], r"seed=\[1 is no override: "),
        (["--config-dir", "nowhere", "seed=1"], r"--config-dir nowhere: there is no such folder"),
        (["--config-dri", "x"], r"--config-dri is no option; did you mean --config-dir\?"),
        (["--loop.iterations", "3"], r"^--loop\.iterations is no option; a key is given as loop\.iterations=VALUE$"),
        (["--config-dir"], r"--config-dir.*expected one argument"),
        (
            ["policies.tool.algorithm.objective={clip: 1}"],
            r"^Could not override .* To append .* use \+policies\.tool\S",
        ),
        (["resume=nowhere"], r"^resume: nowhere is not a run directory: there is no such folder$"),
        (["resume=nowhere/checkpoints/last"], r"^resume: nowhere is not a run directory"),
    ],
    ids=str,
)
def test_a_wrong_word_is_named(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_command_line("train", words)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("loop.boards=3", "loop.boards is now loop.tasks_per_iteration"),
        ("+loop.boards=3", "loop.boards is now loop.tasks_per_iteration"),
        *((f"regime={old}", f"regime={old} is now regime={new}") for old, new in CHOICES["regime"].items()),
        ("policy@policies.tool=[paper_8b_math,frozen]", "policy=paper_8b_math is now policy=paper_8b"),
    ],
)
def test_what_was_renamed_is_answered_with_its_new_name(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$".replace("+", r"\+")):
        check_command_line("train", [word])


def test_options_may_stand_between_words(tmp_path: Path) -> None:
    words = check_command_line("train", ["seed=1", "--config-dir", str(tmp_path), "threads=2"])
    assert words == ["--config-dir", str(tmp_path), "seed=1", "threads=2"]


def test_an_evaluation_s_run_and_experiment(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{{: [")
    for words, message in (
        (["run=nowhere@best"], r"^run: nowhere is not a run directory"),
        ([f"run={tmp_path}"], r"^run: .*config\.yaml cannot be read"),
        (["exp=sokoban_sharde"], r"experiment=sokoban_sharde is unknown; did you mean sokoban_shared\?"),
        (["exp=sokoban_shared", "overrides=['lop.iterations=1']"], r"lop\.iterations is an unknown key"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_command_line("eval", words)


def test_new_names_exist(composed: Callable[..., object]) -> None:
    for group, renamed in CHOICES.items():
        for new in set(renamed.values()):
            check_command_line("train", [f"{group if group != 'policy' else 'policy@policies.tool'}={new}"])


def test_a_users_folder_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "mine.yaml").write_text("defaults: [grpo, _self_]\nfigure: 1\n")
    own = ["--config-dir", str(tmp_path), "algorithm=mine"]
    check_command_line("train", [*own, "algorithm.figure=2"])
    check_command_line("train", [f"hydra.searchpath=[file://{tmp_path}]", "algorithm=mine", "algorithm.figure=2"])
    with pytest.raises(ConfigError, match=r"algorithm\.figur is an unknown key; did you mean algorithm\.figure\?"):
        check_command_line("train", [*own, "algorithm.figur=2"])
    with pytest.raises(ConfigError, match=r"algorithm=min is unknown; did you mean mine\?"):
        check_command_line("train", [*own[:-1], "algorithm=min"])


def test_a_file_that_nobody_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "scale").mkdir()
    (tmp_path / "scale" / "mine.yaml").write_text("# @package _global_\ndefaults: [figures@_global_: laptop]\n")
    with pytest.raises(ConfigError, match=r"policy/mine\.yaml is in no folder of configurations\. Known: frozen"):
        check_command_line("train", ["--config-dir", str(tmp_path), "scale=mine"])


def test_a_command_ends_with_the_message_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"^error: no such thing; and more$"):
        fail(ConfigError("no such thing"), "; and more")
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ConfigError, match="no such thing"):
        fail(ConfigError("no such thing"))

"""Overrides of a command line: a wrong one is named before a run is composed."""

from pathlib import Path

import pytest

from troupe.errors import ConfigError
from troupe.setup.command_line import check_command_line, fail


@pytest.mark.parametrize(
    "words",
    [
        ["env=code", "regime=shared", "policies.shared.optimizer.lr=1e-3"],
        ["env=mixed", "regime=single", "scale=paper_8b"],
        ["experiment=sokoban_specialized", "policy@policies.tool=[laptop,remote]", "policies.tool.remote.model=m"],
        ["+policies.tool.optimizer.fused=true", "~policies.plan", "++env.size=3", "hydra.job.name=x"],
        ["logger=[csv,wandb]", "logger.wandb.mode=x"],
        ["env=reasoning_gym", "env.train.0.name=word_sorting"],
        ["--multirun", "env=code,couplet", "regime=choice(shared,lora)", "policies.tester.base=x"],
        ["--config-name", "mine", "anything=1"],
        ["algorithm.update.clip_norm=inf", "+env.limit=inf"],  # no bound
        ["name=${hydra:job.name}", "seed=${hydra:job.num}"],  # which exist only within the command
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
        (["regime=lroa"], r"^regime=lroa is unknown; did you mean lora\? Known: lora, shared, single, specialized$"),
        (["regime=mean"], r"^regime=mean is unknown\. Known: lora"),  # a hint at shared would be far
        (["experiment=go"], r"^experiment=go is unknown\. Known: WORLD_REGIME, of code, .*; lora, shared"),
        (
            ["env=reasoning_gym", "env.train.0.nam=x"],
            r"env\.train\.0\.nam is an unknown key; did you mean env\.train\.0\.name\?",
        ),
        (["policies.tool.chat.prefill=x"], r"^policies\.tool\.chat\.prefill: .* a plus adds one: \+policies\."),
        (["scale=paper_1_7b", "policies.tool.chat.x=1"], r"policies\.tool\.chat lists no such key; a plus adds one"),
        (["trust.x=1"], r"^trust\.x is an unknown key"),
        (["loop.iteration=3"], r"did you mean loop\.iterations\? docs/configuration\.md lists all keys$"),
        (["regime=shared", "policies.tool.base=x"], r"policies\.tool\.base is an unknown key; did you mean policies\."),
        (["policy@policies.tol=[laptop,frozen]"], r"Could not override 'policy@policies\.tol'\. Did you mean"),
        (["policy@policies.tool=[laptop,frozn]"], r"policy=frozn is unknown; did you mean frozen\?"),
        (["env=couplet", "regime=single"], r"regime=single: env=couplet has no variant with one agent"),
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
        (
            ["-m", "seed=0,1", "hydra/launcher=submitit_slurm"],
            r"submitit_slurm needs submitit: .*\[slurm\]",
        ),
        (["--config-dir"], r"--config-dir.*expected one argument"),
        (
            ["policies.tool.algorithm.objective={clip: 1}"],
            r"^Could not override .* To append .* use \+policies\.tool\S",
        ),
        # Values, before the libraries are imported that take seconds.
        (["loop.iterations=2.5"], r"^loop\.iterations must be a whole number, got 2\.5$"),
        (["policies.tool.optimizer.lr=nan"], r"^policies\.tool\.optimizer\.lr must be a finite number, got nan$"),
        (["name=[a,b]"], r"^name must be a text, got \['a', 'b'\]$"),
        ([f"run_dir={__file__}"], r"^run_dir=.*test_command_line\.py is not an empty folder; choose another"),
        ([f"run_dir={__file__}/x"], r"cannot be made"),
        ([f"run_dir={'x' * 300}"], r"^run_dir=x+ cannot be made: File name too long$"),
        (["seed", "=", "3"], r"^seed is no override: .* Give KEY=VALUE, without spaces beside the =, each in a word"),
        (
            ["name=a=b"],
            r"""^name=a=b is no override: .* quotes\. Give name="a=b", in a shell 'name="a=b"'$""",
        ),
        (
            ["+env.overrides=[a=b,c=[1,2]]"],
            r"""quotes\. Give \+env\.overrides=\["a=b","c=\[1,2\]"\], in a shell '\+env""",
        ),
        (["name=it's"], r"""Give name="it's", in a shell"""),
        (["run_dir=a,b"], r"^run_dir=a,b has several values: run_dir=\[a,b\] is a list, \"run_dir='a,b'\" one text"),
        (["resume=nowhere", "lop.iterations=3"], r"^lop\.iterations is an unknown key"),  # the typo before the folder
        ([f"resume={__file__}"], r"^resume: .*test_command_line\.py is not a run directory: it is a file$"),
        ([f"resume={'x' * 300}"], r"^resume: x+ is not a run directory: File name too long$"),
        (["--config-dir", __file__], r"^--config-dir .*test_command_line\.py: it is a file$"),
        (["resume=nowhere"], r"^resume: nowhere is not a run directory: there is no such folder: .* has no nowhere$"),
        (["resume=nowhere/checkpoints/last"], r"^resume: nowhere is not a run directory"),
    ],
    ids=str,
)
def test_a_wrong_word_is_named(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_command_line("train", words)


def test_options_may_stand_between_words(tmp_path: Path) -> None:
    words = check_command_line("train", ["seed=1", "--config-dir", str(tmp_path), "threads=2"])
    assert words == ["--config-dir", str(tmp_path), "seed=1", "threads=2"]


def test_an_evaluation_s_run_and_experiment(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("{{: [")
    for words, message in (
        (["run=nowhere@best"], r"^run=nowhere@best: give run=nowhere checkpoint=best$"),
        ([f"run={tmp_path}"], r"^run: .*config\.yaml cannot be read"),
        (["exp=sokoban_sharde"], r"experiment=sokoban_sharde is unknown; did you mean sokoban_shared\?"),
        (["exp=sokoban_shared", "overrides=['lop.iterations=1']"], r"lop\.iterations is an unknown key"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_command_line("eval", words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], r"^give one of run=DIR, a run directory, or exp=NAME, an experiment$"),
        (["exp=sokoban_shared", "run=nowhere"], "^give one of run=DIR"),
        (["exp=sokoban_shared", "tasks=two"], "^tasks must be a whole number of at least 1, got 'two'$"),
        (["exp=sokoban_shared", "split=tset"], r"^split=tset is unknown; did you mean test\?"),
        (["exp=sokoban_shared", "checkpoint=bset"], r"^checkpoint=bset is unknown; did you mean best\?"),
        (["exp=sokoban_shared", "temperature=hot"], "^temperature must be own or a number of at least 0, got 'hot'$"),
        (["exp=sokoban_shared", "temperature=inf"], "^temperature must be a finite number, got inf$"),
        (["exp=sokoban_shared", "swap=yes"], "^swap must be true, false or agents to agents, got 'yes'$"),
        (["exp=sokoban_shared", "samples=0"], "^samples must be a whole number of at least 1, got 0$"),
    ],
    ids=str,
)
def test_values_of_an_evaluation(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_command_line("eval", words)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- a\n- b\n", r"env/mine\.yaml must hold keys, got \['a', 'b'\]"),
        (b"\xec\xff", "env=mine: one of the files is not YAML, because not text"),
        (b"", "env=mine: its yaml has no _world_"),
        (b"defaults: [sokoban\n", r"not YAML: .*env/mine\.yaml"),
    ],
    ids=["a list", "no text", "nothing", "cut off"],
)
def test_a_users_damaged_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        check_command_line("train", ["--config-dir", str(tmp_path), "env=mine"])


def test_a_users_folder_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "mine.yaml").write_text("defaults: [grpo, _self_]\ncredit: {figure: 1}\n")
    own = ["--config-dir", str(tmp_path), "algorithm=mine"]
    check_command_line("train", [*own, "algorithm.credit.figure=2"])
    check_command_line(
        "train", [f"hydra.searchpath=[file://{tmp_path}]", "algorithm=mine", "algorithm.credit.figure=2"]
    )
    with pytest.raises(
        ConfigError, match=r"algorithm\.credit\.figur is an unknown key; did you mean algorithm\.credit\.figure\?"
    ):
        check_command_line("train", [*own, "algorithm.credit.figur=2"])
    with pytest.raises(ConfigError, match=r"algorithm=min is unknown; did you mean mine\?"):
        check_command_line("train", [*own[:-1], "algorithm=min"])


def test_a_file_that_nobody_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "scale").mkdir()
    (tmp_path / "scale" / "mine.yaml").write_text("# @package _global_\ndefaults: [figures@_global_: laptop]\n")
    with pytest.raises(ConfigError, match=r"policy/mine\.yaml is in no folder of configurations\. Known: coder, "):
        check_command_line("train", ["--config-dir", str(tmp_path), "scale=mine"])


def test_a_command_ends_with_the_message_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"^error: no such thing; and more$"):
        fail(ConfigError("no such thing"), "; and more")
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ConfigError, match="no such thing"):
        fail(ConfigError("no such thing"))

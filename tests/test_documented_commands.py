"""Every documented command is one that the program takes: its experiment, choices and keys exist."""

import re
from collections.abc import Sequence
from functools import cache

import pytest
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf, open_dict

from troupe.cli.main import COMMANDS
from troupe.cli.start import REWRITTEN
from troupe.setup.command_line import check_choices, check_overrides, options_parser, parsed
from troupe.setup.composition import choices, configurations
from troupe.setup.evaluation import untrained_team
from troupe.setup.parts import plain
from troupe.setup.sections import read_config
from troupe.setup.warm_start import WarmStartOptions
from troupe.sweep.launcher import LAUNCHERS
from troupe.sweep.options import Options

from .documented_commands import Command, block_commands, inline_commands, troupe_words

OF_THE_READER = {"algorithm=median", "engine=generate", "env=relay", "env=meeting"}
"""Choices of the examples in docs/, which the pages' own tests try."""

COMMANDS_OF_PAGES = list(dict.fromkeys([*block_commands(), *inline_commands()]))


pytestmark = pytest.mark.pages


@pytest.fixture(scope="module", autouse=True)
def hydra():
    with configurations():
        yield
    HydraConfig.instance().cfg = None


@pytest.mark.parametrize("command", COMMANDS_OF_PAGES, ids=str)
def test_its_choices_and_keys_exist(command: Command) -> None:
    words = troupe_words(command.text)
    if words and not OF_THE_READER & {*words}:
        check(tuple(words))


@cache
def check(words: tuple[str, ...]) -> None:
    """What ``troupe WORDS`` checks of its words.  Raises ``ValueError``, or Hydra's error."""
    name, *arguments = words if words[0] in COMMANDS or "=" not in words[0] else ["train", *words]
    assert name in COMMANDS, f"troupe {name} is no command"
    if "-m" in arguments:  # of each key's values the first
        arguments = [re.sub(r"(=[^\[,]+),.*", r"\1", word) for word in arguments if word != "-m"]
    if name == "train":
        check_train(options_parser().parse_args(arguments).overrides)
    elif name == "sweep" and arguments != ["sweep="]:
        launchers = {word.partition("=")[2] for word in arguments if word.startswith("launcher=")}
        assert launchers <= LAUNCHERS.keys()  # which of them are installed is not the page's business
        options, overrides = Options.split("sweep", [word for word in arguments if not word.startswith("launcher=")])
        assert options.sweep in choices("sweep")
        check_overrides("train", [word for word in overrides if not word.startswith("hydra.")])
    elif name == "reproduce" and arguments != ["table="]:
        check_overrides("train", Options.split("reproduce", arguments)[1])
    elif name in ("eval", "play"):
        check_overrides(name, REWRITTEN[name](arguments))
        given = dict(word.split("=", 1) for word in arguments)
        for key, group in (("exp", "experiment"), ("env", "env")):
            if key in given:
                untrained_team(f"{group}={given[key]}", [])
    elif name == "warm-start":
        check_overrides("train", WarmStartOptions.read(arguments).world)
    elif name == "replay":
        check_overrides(name, REWRITTEN[name](arguments))
    elif name in ("serve", "push-to-hub"):
        check_overrides(name.replace("-", "_"), arguments)


def check_train(overrides: Sequence[str]) -> None:
    """As ``troupe train`` checks them before it builds anything.  Raises ``ValueError``, or Hydra's error."""
    check_choices(parsed(overrides))
    if not any(word.startswith("resume=") for word in overrides):
        words = [*overrides, "name=documented", "run_dir=none"]
        cfg = compose("train", overrides=words, return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)  # logger=wandb names its tags by hydra's choices
        with open_dict(cfg):
            del cfg["hydra"]
        try:
            read_config(plain(cfg), OmegaConf.to_yaml(cfg, resolve=False))
        finally:
            HydraConfig.instance().cfg = None


def test_pages_have_commands_of_every_kind() -> None:
    names = {words[0] for command in COMMANDS_OF_PAGES if (words := troupe_words(command.text))}
    kinds = {"train", "eval", "play", "replay", "push-to-hub", "compare", "sweep", "reproduce", "report", "serve"}
    assert names >= kinds

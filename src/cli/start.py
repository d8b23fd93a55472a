"""Start a command: its words are checked before what works is imported, which takes seconds."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

import hydra
from omegaconf import DictConfig

from ..errors import ConfigError
from ..setup.command_line import check_command_line, end, fail, options_parser, with_open_keys
from .main import loading


def start(name: str, arguments: Sequence[str]) -> None:
    """The command ``name`` of :data:`.main.CONFIGURED` with the words ``arguments``."""
    config = name.replace("-", "_")
    try:
        with loading():
            words = check_command_line(config, REWRITTEN.get(name, list)(arguments))
    except ConfigError as error:
        fail(error)
    # Hydra reads them there.  So does Lightning, which starts the other processes of strategy=ddp with them: as
    # `troupe key=value ...`, which is `troupe train key=value ...`.
    sys.argv[1:] = words
    options, _ = options_parser().parse_known_intermixed_args(words)
    with TemporaryDirectory() as nowhere:
        dry = any(word.lstrip("+").lower() == "dry_run=true" for word in words)
        if dry and options.multirun:
            sys.argv.append(f"hydra.sweep.dir={nowhere}")  # of Hydra's multirun.yaml: a dry run leaves nothing
        hydra.main(version_base="1.3", config_path="pkg://troupe.configs", config_name=config)(TaskFunction(name))()


@dataclass
class TaskFunction:
    """What Hydra calls with the configuration that it has composed, perhaps in a process of a launcher."""

    name: str

    def __call__(self, cfg: DictConfig) -> Any:
        module = imported(self.name)
        if not cfg.get("dry_run"):  # a connection that is lost is no reason to end
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        try:
            return module.run_command(cfg)
        except KeyboardInterrupt as interrupt:
            sys.exit("; ".join(["interrupted", *map(str, interrupt.args)]))
        except Exception as error:  # the user's code may raise any
            end(error)


def imported(name: str) -> Any:
    """The module of the command ``name``."""
    with loading():
        return import_module(f".{name.replace('-', '_')}", __package__)


def play_words(arguments: Sequence[str]) -> list[str]:
    """:func:`with_open_keys`, and with ``env``, which is the name of a group, as a key."""
    return [re.sub("^env=", "env_name=", word) for word in with_open_keys(arguments)]


REWRITTEN: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "eval": with_open_keys,
    "play": play_words,
    "replay": with_open_keys,
}
"""By command, what is done to its words before Hydra reads them."""

"""``troupe COMMAND``: the modules of this folder, imported once the command is known and its words are checked."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from threading import Timer

from ..errors import nearest

CONFIGURED = ("train", "eval", "play", "replay", "push-to-hub", "serve", "gateway")
"""Commands with the keys of ``configs/NAME.yaml``: their modules have ``run_command(cfg)``.  The others have
``main(arguments)``."""

COMMANDS = {
    "train": "train a team: key=value ...",
    "eval": "evaluate a team: run=DIR or exp=NAME, key=value ...",
    "play": "play with a team in the terminal: run=DIR, exp=NAME or env=NAME, human=AGENT, key=value ...",
    "replay": "fork a stored episode and play on: run=DIR episode=FILE/TASK turn=T, key=value ...",
    "push-to-hub": "upload a trained team to the Hugging Face hub: run=DIR repo=OWNER/NAME, key=value ...",
    "serve": "serve a trained team with vLLM: run=DIR, key=value ...",
    "gateway": "serve a trained team's agents to other programs, every call recorded: run=DIR, key=value ...",
    "sweep": "run what is missing of a sweep, print its table: sweep=NAME, key=value ...",
    "reproduce": "reproduce a table of a publication: table=NAME, scale=laptop|smollm2|paper, key=value ...",
    "runs": "list runs with their status and success: [DIR ...]",
    "watch": "show a run, or several, in the browser while they are written: DIR [DIR ...]",
    "report": "write a run's report.html again, or one page about several runs or a sweep: DIR [DIR ...]",
    "compare": "compare two evaluations task by task: A[@CONDITION] B[@CONDITION]",
    "new": "write a project of your own, with a world, a credit rule and tests: NAME [DIR]",
    "warm-start": "make a small base model for a world with demonstrations: env=NAME, key=value ...",
}
"""By command, whose module has its name: its line in the help."""


EXPERIMENT = {"train": "experiment", "sweep": "experiment", "eval": "exp", "play": "exp"}
"""By command, its key for an experiment; both words are understood, since make has one for all of them."""

FIRST = {"train": "experiment", "sweep": "sweep", "reproduce": "table"} | dict.fromkeys(
    ("eval", "play", "replay", "push-to-hub", "serve", "gateway"), "run"
)
"""By command, the key of a first word that is none of Hydra's: ``troupe eval DIR`` is ``troupe eval run=DIR``."""


LONG = ("sweep", "reproduce", "watch", "warm-start")
"""Commands that go on where somebody has stopped listening, a browser or a worker; so do the configured ones."""


def main() -> None:
    """The console script.  ``troupe key=value ...`` is ``troupe train key=value ...``.

    Where the reader of what it prints ends first (``troupe runs | head -1``) the signal of the pipe ends it at once and
    in silence, unless it is one of the :data:`LONG` ones.
    """
    # After >&- there is none.
    sys.stdout, sys.stderr = (each or Path(os.devnull).open("w") for each in (sys.stdout, sys.stderr))  # noqa: SIM115
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        _main()
    finally:
        sys.stdout.flush()
        signal.signal(signal.SIGPIPE, before)


def _main() -> None:
    first, *rest = sys.argv[1:] or ["--help"]
    if first in ("-h", "--help"):
        print(usage())
    elif first == "--version":
        from importlib.metadata import version  # many modules, in whose imports Ctrl-C would print a traceback

        print(f"troupe {version('troupe-rl')}")
    elif first in COMMANDS:
        _run(first, rest)
    elif "=" in first or first.startswith(("+", "~", "-")):  # a word for Hydra
        _run("train", [first, *rest])
    else:
        sys.exit(f"error: unknown command '{first}'{nearest(first, list(COMMANDS))}")


def _run(name: str, arguments: Sequence[str]) -> None:
    if (key := FIRST.get(name)) and arguments and re.fullmatch(r"[\w/.][\w/.@-]*", arguments[0]):
        if key == "run" and name in EXPERIMENT and "/" not in arguments[0] and not Path(arguments[0]).exists():
            key = EXPERIMENT[name]
        arguments = [f"{key}={arguments[0]}", *arguments[1:]]
    if key := EXPERIMENT.get(name):
        arguments = [re.sub(r"^(exp|experiment)=", f"{key}=", word) for word in arguments]
    try:
        if name in CONFIGURED and {"-h", "--help"} & set(arguments):
            return print(usage_of(name))
        if name in LONG and not {"-h", "--help", "dry_run=true"} & set(arguments):
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        with loading():
            module = import_module(".start" if name in CONFIGURED else f".{name.replace('-', '_')}", __package__)
        module.start(name, arguments) if name in CONFIGURED else module.main(arguments)
    except KeyboardInterrupt:  # before the command has begun what it would have to end itself
        sys.exit("interrupted")
    except OSError as error:  # it names the file
        sys.exit(f"error: {error}")


@cache
def _tell() -> None:
    """Once in a process."""
    print("loading the libraries, which takes some seconds ...", file=sys.stderr)


@contextmanager
def loading(after_s: float = 2.0) -> Iterator[None]:
    """A context for imports: Ctrl-C ends the process at once, and a terminal is told that they take long, if they do.

    Within an import, an exception may be printed with its traceback, or be lost in a destructor.  What imports make
    stays: to search it for garbage again and again would be an eighth of their time, and more later.
    """
    collects = gc.isenabled()
    gc.disable()
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    told = Timer(after_s, _tell)
    try:
        if sys.stderr.isatty():
            told.start()
        yield
    finally:
        told.cancel()
        signal.signal(signal.SIGINT, handler)
        if collects:
            gc.freeze()
            gc.enable()


def usage_of(name: str) -> str:
    """The help text of a command of :data:`CONFIGURED`: its keys as its yaml explains them, and the choices of its
    groups.  Nothing is composed, which would take seconds and ask for a run."""
    spec = find_spec("troupe.configs")  # which imports nothing; the package itself imports Hydra
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    text = folder.joinpath(f"{name.replace('-', '_')}.yaml").read_text(encoding="utf-8").partition("\nhydra:")[0]
    keys = [line for line in text.splitlines() if not line.startswith(("  - _", "  - override"))]
    groups = re.findall(r"^  - ([a-z]+):", text, re.MULTILINE)
    choices = {group: sorted(file.stem for file in folder.joinpath(group).glob("*.yaml")) for group in groups}
    return "\n".join(
        [
            f"usage: troupe {name} KEY=VALUE ...: {COMMANDS[name]}",
            "",
            *keys,
            "",
            *(fill(f"{group}: {', '.join(choices[group])}", 120, subsequent_indent="  ") for group in choices),
            "--cfg job prints all keys as they are composed; --hydra-help has Hydra's own options",
        ]
    )


def usage() -> str:
    """The help text."""
    lines = [f"  {name:<11} {line}" for name, line in COMMANDS.items()]
    return "\n".join(
        [
            "usage: troupe COMMAND ...",
            "",
            *lines,
            "",
            "troupe key=value ... is troupe train key=value ...; troupe COMMAND --help says more; docs/ has all keys",
        ]
    )

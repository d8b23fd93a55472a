"""``troupe COMMAND``: the modules of this folder, imported once the command is known."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version

from ..errors import nearest

COMMANDS = {
    "train": "train a team: key=value ...",
    "eval": "evaluate a team: run=DIR or exp=NAME, key=value ...",
    "serve": "serve a trained team with vLLM: run=DIR, key=value ...",
    "sweep": "run what is missing of a sweep, print its table: sweep=NAME, key=value ...",
    "report": "write a run's report.html again: RUN",
    "compare": "compare two evaluations task by task: A[@CONDITION] B[@CONDITION]",
    "warm-start": "make a small base model of scale=laptop: --base NAME",
}
"""By command, whose module has its name and a ``main(arguments)``: its line in the help."""


def main() -> None:
    """The console script.  ``troupe key=value ...`` is ``troupe train key=value ...``."""
    first, *rest = sys.argv[1:] or ["--help"]
    if first in ("-h", "--help"):
        print(usage())
    elif first == "--version":
        print(f"troupe {version('troupe')}")
    elif first in COMMANDS:
        import_module(f".{first.replace('-', '_')}", __package__).main(rest)
    elif "=" in first or first.startswith(("+", "~", "-")):  # a word for Hydra
        import_module(".train", __package__).main([first, *rest])
    else:
        sys.exit(f"error: unknown command '{first}'{nearest(first, list(COMMANDS))}")


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

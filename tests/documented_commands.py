"""The commands of README.md, CONTRIBUTING.md and docs/: read from the pages, and as the shell would call them."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?<!-->\n)^ *```bash\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
"""A block of shell commands; those after a comment are tested apart (:func:`scripts`, :func:`of_project`)."""
INLINE = re.compile(r"`((?:make [a-z_-]+|troupe)(?: [^`\s]+)*=[^`]*)`")
PLACES = {
    r"\[key=value[^\]]*\]|(?<= )\.\.\.(?= |$)": "",
    r"\b(exp|experiment)=(NAME|EXPERIMENT|WORLD_REGIME|WORLD_specialized|\.\.\.)": r"\1=sokoban_specialized",
    r"\bsweep=NAME": "sweep=seeds",
    r"\btable=NAME": "table=writing",
    r"\benv=NAME\b": "env=couplet",
    r"(code|math)_REGIME\b": r"\1_shared",
    r"\bSEED\b": "0",
    r"\bkey=value\b": "seed=0",
    r"\bsamples=N\b": "samples=2",
}
"""What stands for something that the reader chooses, and a choice."""


@dataclass(frozen=True)
class Command:
    """A command of ``page``; ``refused``: the page shows the error that it ends with."""

    page: str
    text: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def block_commands() -> list[Command]:
    """Of all blocks of shell commands, each once."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.findall(text):
            found += [Command(_name(page), *parts) for parts in _lines(block)]
    return list(dict.fromkeys(found))


def inline_commands() -> list[Command]:
    """Those within sentences that set a key, each once."""
    pages = [(page, re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)) for page in PAGES]
    found = [Command(_name(page), " ".join(text.split())) for page, rest in pages for text in INLINE.findall(rest)]
    return list(dict.fromkeys(found))


def scripts(page: str) -> dict[str, str]:
    """The scripts of ``page``, by name."""
    return dict(re.findall(r"<!-- script: (\S+) -->\n```bash\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))


def of_project(text: str) -> list[str]:
    """The commands of the blocks of ``text`` that are for the folder of a project, in their order."""
    blocks = re.findall(r"<!-- in a project -->\n```bash\n(.*?)```", text, re.DOTALL)
    return [command for block in blocks for command, _ in _lines(block)]


def troupe_words(text: str) -> list[str] | None:
    """What follows ``troupe`` where ``text`` is called, by itself or by make; None where it calls something else."""
    for pattern, choice in PLACES.items():
        text = re.sub(pattern, choice, text)
    words = shlex.split(text, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words[0] == "make":
        words = _of_make(words[1:])
    for i, word in enumerate(words):
        if word == "troupe" or word.endswith("/troupe"):
            return words[i + 1 :]
    return None


def _lines(block: str) -> Iterator[tuple[str, bool]]:
    """The commands of a block, without comments, each with whether an error follows."""
    lines = block.replace("\\\n", " ").splitlines()
    shown = any(line.startswith("$ ") for line in lines)  # with their outputs
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        text = re.sub(r"(^|\s)#\s.*", "", line).strip()
        if not text or (shown and not line.startswith("$ ")):
            continue
        yield " ".join(text.removeprefix("$ ").split()), after.startswith("error:")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _of_make(arguments: list[str]) -> list[str]:
    """The last command of ``make ARGUMENTS``, apart from a make that may run this test."""
    apart = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "exp", "scale", "args", "run", "a", "b", "sweep", "table", "launcher"}
    environment = {name: value for name, value in os.environ.items() if name not in apart}
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"make {shlex.join(arguments)}: {done.stderr}")
    lines = done.stdout.replace("\\\n", " ").splitlines()
    return shlex.split(lines[-1]) if lines else []

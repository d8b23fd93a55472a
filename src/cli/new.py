"""Write a small project of your own: a world of three agents, a credit rule, their configurations and tests."""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from ..errors import ConfigError, visible

TEMPLATE = Path(str(files("troupe.cli") / "template"))


def check_name(name: str) -> None:
    """Raise :class:`ConfigError` where ``name`` cannot be that of the package and of its yaml files."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"{name!r} cannot be the name of a Python package: small letters, digits and _")
    taken = [file.stem for file in (Path(str(files("troupe.configs")))).glob("*/*.yaml")]
    if name in taken:
        raise ConfigError(f"{name} is the name of one of Troupe's own configurations; choose another")
    if name in sys.stdlib_module_names or find_spec(name) is not None:
        raise ConfigError(f"{name} is the name of a Python module that exists here; choose another")


def write_project(name: str, folder: Path) -> list[Path]:
    """Write the project ``name`` into ``folder``, which is created; returns its files.

    Raises :class:`ConfigError` where the folder is not empty, or the name is not usable.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not an empty folder")
    check_name(name)
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    written = []
    for source in sorted(TEMPLATE.rglob("*.jinja")):
        place = str(source.relative_to(TEMPLATE).with_suffix("")).replace("NAME", name)
        path = folder / (".gitignore" if place == "gitignore" else place)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = environment.from_string(source.read_text(encoding="utf-8"))
        path.write_text(text.render(name=name, version=version("troupe-rl")), encoding="utf-8")
        written.append(path)
    return written


def main(arguments: Sequence[str]) -> None:
    """``troupe new NAME [DIR]``."""
    parser = argparse.ArgumentParser("troupe new", description=__doc__)
    parser.add_argument("name", metavar="NAME", help="of the package: small letters, digits and _")
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?", help="where to write it (./NAME)")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(options.name)
    try:
        written = write_project(options.name, folder)
    except (ConfigError, OSError) as error:
        sys.exit(f"error: {visible(error)}")
    print("\n".join(map(str, written)))
    print(f"\nnext: cd {folder}, and README.md")

"""How much of a run's file is read, whoever wrote it: its place, kind, size and depth are checked before its content.

A run directory may come from a stranger, or be damaged: a page of text can be nested deeper than a parser's stack, or
unfold to more than memory holds, and a file can claim a size that no disk has.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Final

import yaml

from ..errors import whole_characters

MOST_BYTES: Final = {".yaml": 1 << 18, ".json": 1 << 25, ".jsonl": 1 << 32}
"""By the ending of a file's name.  YAML takes 20 microseconds and 500 bytes for each value, of 2 bytes at least."""
LONGEST_LINE: Final = 1 << 28
"""Bytes of one line: a tree with long prompts and several numbers for each token."""
DEEPEST: Final = 64
"""Lists and keys within each other; Troupe writes fewer than 20.  What walks through them has the rest of the stack."""
LONGEST_NUMBER: Final = 300
"""Characters of a number in YAML, whose base may be 60: its value takes time that grows with the square."""

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Perhaps half of a surrogate pair, which no table and no page can be written with."""
_NUMBER: Final = re.compile(r"[-+]?[0-9][0-9a-fA-FxX_:.]*")
_BRACKETS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_OTHERS: Final = bytes(code for code in range(256) if code not in _BRACKETS)


class UnreadableError(ValueError):
    """A file that is not read; the message says why, without its name."""


def is_within(file: Path, folder: Path) -> bool:
    """Whether no link leads from ``file`` out of ``folder``."""
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))


@contextmanager
def opened(folder: Path, name: str) -> Iterator[BinaryIO]:
    """The file ``name`` of the directory ``folder`` of a run or an evaluation.

    Raises :class:`UnreadableError` where it is no file, or is reached by a link that leads out of ``folder``, is too
    large or may not be read; and ``FileNotFoundError``.
    """
    file = folder / name
    if not is_within(file, folder):
        raise UnreadableError(f"leads out of {folder}, to {os.path.realpath(file)}")
    if file.exists() and not file.is_file():  # whoever opens a named pipe waits for ever
        raise UnreadableError("is a folder, not a file" if file.is_dir() else "is no file")
    try:
        with file.open("rb") as stream:
            size, most = os.fstat(stream.fileno()).st_size, MOST_BYTES.get(file.suffix, MOST_BYTES[".jsonl"])
            if size > most:
                raise UnreadableError(f"has {size} bytes, more than {most}")
            yield stream
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}") from error


def read_text(folder: Path, name: str) -> str:
    """The file's text.  Raises as :func:`opened`."""
    with opened(folder, name) as stream:
        return stream.read().decode("utf-8", "replace")


def read_content(folder: Path, name: str) -> Any:
    """What the JSON or YAML file holds.  Raises as :func:`opened`, and :class:`UnreadableError` for other texts."""
    text = read_text(folder, name)
    try:
        return parse_yaml(text) if name.endswith(".yaml") else parse_json(text)
    except yaml.YAMLError as error:
        raise UnreadableError(f"cannot be read (not YAML: {str(error).splitlines()[0]})") from error
    except ValueError as error:
        raise UnreadableError(f"is not whole JSON ({error})") from error


def lines_of(folder: Path, name: str, errors: str = "replace") -> Iterator[tuple[int, str]]:
    """(Number from 1, text) of each line, as it is read; ``errors`` as for ``bytes.decode``.

    Raises as :func:`opened`, and :class:`UnreadableError` for a line that is too long.
    """
    with opened(folder, name) as stream:
        number = 0
        while line := stream.readline(LONGEST_LINE + 1):  # texts may hold other line ends
            number += 1
            if len(line) > LONGEST_LINE:
                raise UnreadableError(f"has more than {LONGEST_LINE} bytes in line {number}")
            yield number, line.decode("utf-8", errors).removesuffix("\n")


def json_lines(folder: Path, name: str) -> Iterator[Any]:
    """What each line of the file holds.  Raises as :func:`lines_of`, and ``ValueError`` for a line that is no JSON."""
    return (parse_json(line) for _, line in lines_of(folder, name, "strict"))


def parse_yaml(text: str) -> Any:
    """The content of a configuration as plain data, a tree.  Raises ``yaml.YAMLError``."""
    # libyaml is nine times as fast, which a table over hundreds of runs needs; PyYAML may be built without it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    _check_events(text, loader)
    try:
        return yaml.load(text, loader)
    except (ValueError, OverflowError) as error:  # numbers and dates that Python does not have
        raise yaml.YAMLError(str(error)) from error


def _check_events(text: str, loader: Any) -> None:
    """Raise ``yaml.YAMLError`` for what a resolved configuration does not have, and that takes a loader too far."""
    depth = 0
    for event in yaml.parse(text, loader):  # without a stack of its own, as its loader has one
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"it is nested deeper than {DEEPEST}")
        # Aliases make a circle, or of a page of text more nodes than memory holds.
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("it has aliases")
        if getattr(event, "tag", None) not in (None, "!"):  # a class, or a type that its text is not of
            raise yaml.YAMLError(f"it has the tag {event.tag}")
        number = isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _NUMBER.fullmatch(event.value)
        if number and len(event.value) > LONGEST_NUMBER:
            raise yaml.YAMLError(f"it has a number of more than {LONGEST_NUMBER} characters")


def parse_json(text: str) -> Any:
    """The content of a JSON text.  Raises ``ValueError``, also for numbers that Python does not have, and for what is
    nested too deep.  Its texts are in whole characters."""
    if text.count("[") + text.count("{") > DEEPEST:
        outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])  # of strings
        brackets = outside.encode("utf-8", "replace").translate(None, _OTHERS)
        if any(depth > DEEPEST for depth in accumulate(map(_BRACKETS.__getitem__, brackets))):
            raise ValueError(f"it is nested deeper than {DEEPEST}")
    content = json.loads(text)
    if (
        _HALF.search(text)
        and (whole := whole_characters(written := json.dumps(content, ensure_ascii=False))) != written
    ):
        content = json.loads(whole)
    return content

"""The errors that rooms have in common, checks of values, suggestions for a misspelt key, text that can be shown."""

from __future__ import annotations

import difflib
import errno
import math
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

Whole = Annotated[int, Field(), "a whole number"]
Positive = Annotated[int, Field(ge=1), "a whole number of at least 1"]
Natural = Annotated[int, Field(ge=0), "a whole number of at least 0"]
AboveZero = Annotated[float, Field(gt=0), "above 0"]
NotNegative = Annotated[float, Field(ge=0), "at least 0"]
Share = Annotated[float, Field(ge=0, le=1), "in [0, 1]"]
"""Types of the fields of settings, each with its range in words, for :func:`check_fields`."""

LIKE = 0.65
"""The similarity, by difflib, from which on a name is suggested: a slip or two of the fingers, not another word."""
CONTROLS = (
    {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)
"""Control characters, which a terminal would obey, to what is seen in their place."""

DIRECTIONS = dict.fromkeys([0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
"""Characters that change the direction of writing, also of what stands beside them on a line."""


def visible(text: object) -> str:
    """``text`` in whole characters, without those that a terminal would obey: for what models say and files hold,
    before printing."""
    return whole_characters(str(text)).translate(CONTROLS | DIRECTIONS)


def whole_characters(text: str) -> str:
    """``text`` with U+FFFD for each half of a surrogate pair without the other, as escapes of JSON may write it: no
    tokenizer and no file takes one."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class ConfigError(ValueError):
    """A configuration that cannot run; the message names the key."""


class UnsupportedAttentionError(ValueError):
    """A model asks its attention for something that is not computed here."""


class AbsentError(ValueError):
    """What this machine lacks and another may have: a package, a device, a key, a file that is to be fetched."""


class LostEpisodesError(RuntimeError):
    """More episodes are lost than ``faults`` allows; the message has the first failure's."""


class PublishError(RuntimeError):
    """The hub did not take an upload; the message says why."""


class DiskFullError(OSError):
    """A file that could not be written whole: the disk, a quota or a limit on the size of files is used up."""

    def __str__(self) -> str:
        return str(self.strerror)


def unwritten(error: OSError, path: Path) -> OSError:
    """``error`` of writing ``path``, which the system does not name; :class:`DiskFullError` where there is no room."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return OSError(error.errno, error.strerror, str(path))
    free = shutil.disk_usage(path.parent).free >> 20
    reason = f"disk full: {free} MiB free at {path.parent} ({error.strerror}, writing {path.name})"
    remedy = "raise the limit (ulimit -f)" if error.errno == errno.EFBIG else "make room"
    return DiskFullError(error.errno, f"{reason}; {remedy} and go on", str(path))


def check_whole(key: str, value: object, least: int, error: type[ValueError] = ValueError) -> None:
    """Raise ``error``, naming ``key``, unless ``value`` (whatever a configuration holds) is such a number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise error(f"{key} must be a whole number of at least {least}, got {value!r}")


def check_fields(settings: object, section: str = "", error: type[ValueError] = ValueError) -> None:
    """Raise ``error``, naming the key in ``section``, for a field of the dataclass ``settings`` that is not of its
    type: one of the types above, true or false, or one of several words."""
    kind: Any = type(settings)
    for name, (adapter, expected) in _checked(kind).items():
        try:
            adapter.validate_python(value := getattr(settings, name), strict=True)
        except ValidationError:
            raise error(f"{section}{name} must be {expected}, got {value!r}") from None


@cache
def _checked(kind: type) -> dict[str, tuple[TypeAdapter[Any], str]]:
    """By field, its checker and what it may be."""
    hints = get_type_hints(kind, include_extras=True)
    ranges = {each.name: _range(hints[each.name]) for each in fields(kind)}
    return {name: (TypeAdapter(hints[name]), words) for name, words in ranges.items() if words}


def _range(hint: Any) -> str:
    """What a value of the type ``hint`` may be; "" of a type that is not checked."""
    if get_origin(hint) is Annotated:
        return str(hint.__metadata__[-1])
    if get_origin(hint) is Literal:
        return " or ".join(words) if len(words := [*map(str, get_args(hint))]) < 3 else f"one of {', '.join(words)}"
    if type(None) in get_args(hint):
        return _range(get_args(hint)[0])
    return "true or false" if hint is bool else ""


def check_above_zero(key: str, value: object, largest: float = math.inf) -> None:
    """As :func:`check_whole`, for a number above 0 and not above ``largest``."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= largest:
        raise ValueError(f"{key} must be above 0, got {value!r}")


def check_variable(key: str, value: str | None) -> None:
    """Raise ``ValueError``, naming ``key`` alone, for a ``value`` that is no name of an environment variable: it may be
    the secret itself."""
    if value is not None and not re.fullmatch(r"[A-Za-z_]\w*", str(value), re.ASCII):
        raise ValueError(
            f"{key} must be the name of an environment variable, which holds the key, and not the key itself"
        )


def variable(key: str, name: str) -> str:
    """The secret in the environment variable ``name``, the value of ``key``.

    Raises :class:`AbsentError` where there is none.  It repeats a name in capitals; another one may be the secret.
    """
    if not (secret := os.environ.get(name)):
        shown = f"={name}" if name.isupper() else ""
        raise AbsentError(f"{key}{shown}: the environment holds no such variable")
    return secret


def no_folder(path: Path) -> str:
    """Why ``path`` is no folder: its first part that is something else; or where its first missing part was looked for,
    and the folder there that has a name like it."""
    missing = next(each for each in (path, *path.parents) if each.parent.is_dir())
    if os.path.lexists(missing):
        return f"{'it' if missing == path else missing} is {'a file' if missing.is_file() else 'no folder'}"
    beside = near(missing.name, [each.name for each in missing.parent.iterdir() if each.is_dir()])
    return f"there is no such folder: {missing.parent.absolute()} has no {missing.name}{beside.rstrip('.')}"


def number_of(number: int, noun: str, plural: str = "") -> str:
    """``1 run``, ``2 runs``, ``2 policies``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def near(word: str, known: Iterable[str]) -> str:
    """``; did you mean ONE?`` of the names ``known``, or a full stop where none is like ``word``."""
    names = difflib.get_close_matches(word, list(known), 1, LIKE)
    return f"; did you mean {names[0]}?" if names else "."


def nearest(word: str, known: Sequence[str]) -> str:
    """:func:`near`, and all names."""
    return f"{near(word, known)} Known: {', '.join(known)}"

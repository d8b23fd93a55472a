"""The errors that rooms have in common, checks of numbers, suggestions for a misspelt key, text for a terminal."""

from __future__ import annotations

import difflib
import errno
import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

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
    """``text`` without characters that a terminal would obey: for what models say and files hold, before printing."""
    return str(text).translate(CONTROLS | DIRECTIONS)


class ConfigError(ValueError):
    """A configuration that cannot run; the message names the key."""


class UnsupportedAttentionError(ValueError):
    """A model asks its attention for something that is not computed here."""


class AbsentError(ValueError):
    """What this machine lacks and another may have: a package, a device, a key, a file that is to be fetched."""


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


def check_whole(key: str, value: object, least: int) -> None:
    """Raise ``ValueError``, naming ``key``, unless ``value`` (whatever a configuration holds) is such a number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{key} must be a whole number of at least {least}, got {value!r}")


def check_above_zero(key: str, value: object, largest: float = math.inf) -> None:
    """As :func:`check_whole`, for a number above 0 and not above ``largest``."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= largest:
        raise ValueError(f"{key} must be above 0, got {value!r}")


def near(word: str, known: Iterable[str]) -> str:
    """``; did you mean ONE?`` of the names ``known``, or a full stop where none is like ``word``."""
    names = difflib.get_close_matches(word, list(known), 1, LIKE)
    return f"; did you mean {names[0]}?" if names else "."


def nearest(word: str, known: Sequence[str]) -> str:
    """:func:`near`, and all names."""
    return f"{near(word, known)} Known: {', '.join(known)}"

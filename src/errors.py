"""The errors that rooms have in common, and suggestions for a misspelt key."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class ConfigError(ValueError):
    """A configuration that cannot run; the message names the key."""


class AbsentError(ValueError):
    """What this machine lacks and another may have: a package, a device, a key, a file that is to be fetched."""


def nearest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.4)
    return (f"; did you mean {near[0]}?" if near else ".") + f" Known: {', '.join(known)}"

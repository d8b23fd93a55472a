"""The error that names a configuration key, and suggestions for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class ConfigError(ValueError):
    """A configuration that cannot run; the message names the key."""


def nearest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.4)
    return (f"; did you mean {near[0]}?" if near else ".") + f" Known: {', '.join(known)}"

"""Values that a sandbox returns: parsed as data, compared by exact types."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

from .guest.plain import decode
from .jobs import NO_VALUE, JsonValue, Missing, PlainValue

_DEPTH: Final = 100


def parse_value(data: bytes) -> JsonValue | Missing:
    """The one JSON document in ``data``, or ``NO_VALUE``.

    Refused: text before or after it, NaN and infinities (also as 1e999), integers of more than 4300 digits (Python's
    limit), more than 100 levels of nesting, and invalid Unicode (lone surrogates).
    """
    try:
        value: JsonValue = json.loads(data.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):  # not JSON, or JSON that breaks parsers
        return NO_VALUE
    return value if _is_plain(value) else NO_VALUE


def read_value(data: bytes) -> PlainValue | Missing:
    """The value that a program returned, as :func:`.guest.plain.encode` wrote it, or ``NO_VALUE``.

    Refused, beside what :func:`parse_value` refuses: an object of no kind that ``encode`` writes, and keys made to
    collide.  A tuple, a set or the like has two levels of nesting.
    """
    value = parse_value(data)
    try:
        return NO_VALUE if value is NO_VALUE else decode(value)
    except ValueError:
        return NO_VALUE


def equal_values(found: PlainValue | Missing, expected: object) -> bool:
    """Whether a run's value is the expected one, of JSON's types.

    Types must agree (``True`` is not 1, 1 is not 1.0), in lists and dictionaries element by element.  ``expected`` is
    converted to JSON first (a tuple to a list, keys to text).
    """
    return found is not NO_VALUE and _equal(found, json.loads(json.dumps(expected)))


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a float")
    return number


def _is_plain(value: Any) -> bool:
    """Whether the depth and the texts are acceptable; without recursion."""
    level = [value]
    for _ in range(_DEPTH):
        if not level:
            return True
        texts = [item for item in level if isinstance(item, str)] + [
            key for item in level if isinstance(item, dict) for key in item
        ]
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            return False
        level = [
            inner
            for item in level
            if isinstance(item, list | dict)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return not level


def _equal(found: Any, expected: Any) -> bool:
    if type(found) is not type(expected):
        return False
    if type(found) is list:
        return len(found) == len(expected) and all(map(_equal, found, expected))
    if type(found) is dict:
        return found.keys() == expected.keys() and all(_equal(found[key], expected[key]) for key in found)
    return bool(found == expected)

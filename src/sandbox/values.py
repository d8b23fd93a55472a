"""Values that a sandbox returns: parsed as data, compared by exact types."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

from .base import NO_VALUE, JsonValue, Missing

_DEPTH: Final = 100
ROUNDING: Final = 1e-12
"""The rounding error of a sum of floats that cancels: a float this small counts as 0."""


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


def equal_values(
    found: JsonValue | Missing, expected: object, *, tolerance: float = 0.0, absolute: float | None = None
) -> bool:
    """Whether a run's value is the expected one.

    Types must agree (``True`` is not 1, 1 is not 1.0), in lists and dictionaries element by element.  ``expected`` is
    converted to JSON first (a tuple to a list, keys to text).  Floats may differ by ``tolerance``, which is relative,
    or by ``absolute``, whichever allows more; if ``tolerance`` is above 0, an integer may stand in place of a float,
    and ``absolute`` is :data:`ROUNDING` unless it is given.
    """
    if found is NO_VALUE:
        return False
    absolute = min(tolerance, ROUNDING) if absolute is None else absolute
    return _equal(found, json.loads(json.dumps(expected)), tolerance, absolute)


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


def _equal(found: Any, expected: Any, tolerance: float, absolute: float) -> bool:
    numbers = (int, float) if tolerance else (float,)
    if type(expected) is float and type(found) in numbers:
        return _close(found, expected, tolerance, absolute)
    if type(found) is not type(expected):
        return False
    if type(found) is list:
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(_equal(a, b, tolerance, absolute) for a, b in pairs)
    if type(found) is dict:
        return found.keys() == expected.keys() and all(
            _equal(found[k], expected[k], tolerance, absolute) for k in found
        )
    return bool(found == expected)


def _close(found: int | float, expected: float, tolerance: float, absolute: float) -> bool:
    if math.isnan(expected) or math.isinf(expected):
        return False
    try:
        return math.isclose(found, expected, rel_tol=tolerance, abs_tol=absolute)
    except OverflowError:  # an integer beyond the range of floats
        return False

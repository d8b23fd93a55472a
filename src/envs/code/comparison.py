"""How the value of a call is compared with the expected one, in the trainer, and how both are written in a test.

Values have come from the sandbox as plain ones, so that Python's own operators compare them: no method of a program's
class takes part.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal

from ...sandbox import decode, encode

ROUNDING: Final = 1e-12
"""The rounding error of a sum of floats that cancels: a float this small counts as 0."""
WRAPPERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    kind.__name__: kind for kind in (tuple, list, set, frozenset, sorted)
}
"""Functions of an assertion that take the value before it is compared."""
_NUMBERS: Final = (int, float, complex, Fraction, Decimal)
_TOKEN: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,6})?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Rule:
    """What a test asks of a value.

    ``json``: equal where both are JSON, which has no tuples and no keys but texts, with a tolerance for floats.
    The others are assertions: ``equal``: Python's ``==``, after ``wrapper``; ``identical``: that singleton; ``truth``:
    counts as true or as false; ``within``: less than ``absolute`` away; ``isclose``: ``math.isclose`` with ``relative``
    and ``absolute``.
    """

    kind: Literal["json", "equal", "identical", "truth", "within", "isclose"]
    wrapper: str | None = None
    relative: float = 0.0
    absolute: float = 0.0

    def arguments(self, text: str) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call, by place and by name."""
        value = self.value(text)
        return (value, {}) if isinstance(value, list) else (value[0], value[1])

    def value(self, text: str) -> Any:
        """The value that a test states."""
        return json.loads(text) if self.kind == "json" else decode(json.loads(text))

    def accepts(self, value: Any, expected: Any, tolerance: float) -> bool:
        """Whether a program's ``value`` is as the test asks; ``tolerance`` is that of ``json``."""
        try:
            match self.kind:
                case "json":
                    return same_json(value, expected, tolerance)
                case "equal":
                    return bool((WRAPPERS[self.wrapper](value) if self.wrapper else value) == expected)
                case "identical":
                    return value is expected
                case "truth":
                    return bool(value) is expected
                case "within":
                    return bool(abs(value - expected) < self.absolute)
                case "isclose":
                    return math.isclose(value, expected, rel_tol=self.relative, abs_tol=self.absolute)
        except (TypeError, ValueError, ArithmeticError):  # the assertion raises: a text is no number, a list no member
            return False


JSON: Final = Rule("json")
EQUAL: Final = Rule("equal")


def same_json(value: Any, expected: Any, tolerance: float) -> bool:
    """Equal in Python, as the benchmarks' own judges compare (``True``, 1 and 1.0 are one value), where both are JSON:
    a tuple is a list, and a key that is no text has become one.

    Floats may differ by ``tolerance``, which is relative, or by :data:`ROUNDING`.
    """
    if isinstance(expected, list):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(expected)
            and all(same_json(a, b, tolerance) for a, b in zip(value, expected, strict=True))
        )
    if isinstance(expected, dict):
        value = _with_text_keys(value) if isinstance(value, dict) else None
        return (
            value is not None
            and value.keys() == expected.keys()
            and all(same_json(value[key], expected[key], tolerance) for key in expected)
        )
    if not isinstance(expected, int | float) or not isinstance(value, _NUMBERS):
        return bool(value == expected)
    return bool(value == expected) or (isinstance(expected, float) and _close(value, expected, tolerance, ROUNDING))


def _with_text_keys(value: dict[Any, Any]) -> dict[Any, Any] | None:
    """As ``json`` writes them; None where it does not."""
    try:
        texts = [key if isinstance(key, str) else json.dumps(key) for key in value if not isinstance(key, tuple)]
    except TypeError:
        return None
    return dict(zip(texts, value.values(), strict=True)) if len({*texts}) == len(value) else None


def same_numbers(token: str, expected: str, tolerance: float) -> bool:
    """Whether two words are one number: by value; where ``expected`` has a fraction, but for ``tolerance``, relative or
    absolute, as judges of contests allow it."""
    if not _TOKEN.fullmatch(token) or not _TOKEN.fullmatch(expected):
        return False
    if Decimal(token) == Decimal(expected):
        return True
    return not expected.lstrip("+-").isdigit() and _close(float(token), float(expected), tolerance, tolerance)


def _close(value: Any, expected: float, relative: float, absolute: float) -> bool:
    try:
        return math.isfinite(expected) and math.isclose(value, expected, rel_tol=relative, abs_tol=absolute)
    except (TypeError, OverflowError):  # a complex number; one beyond the range of floats
        return False


def written(value: Any) -> str:
    """``value`` as the text of a test that is an assertion."""
    return json.dumps(encode(value))


def shown(value: Any, rule: Rule) -> str:
    """``value`` in the words of prompts: JSON, or Python's notation where an assertion judges it."""
    if rule.kind == "json":
        try:
            return json.dumps(value)
        except TypeError:  # a set, a number of another kind
            return repr(value)
    return repr(value)

"""Python's plain values as JSON, between trainer and program: what JSON has none of is an object with one key.

JSON's own values stay as they are.  ``{"$tuple": [1, 2]}`` is ``(1, 2)``; sets, bytes, numbers of other kinds, floats
that JSON lacks, and dictionaries with keys that are no text have keys of their own.  Of an object of any other type
only its truth, and the items of an iterator, are carried (:class:`Opaque`).  Instances of subclasses travel as the
plain values that they hold, so that no method of theirs, like ``__eq__``, has a say where they are compared.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, MappingView
from typing import Any, Final

_dumps = json.dumps
_SCALARS: Final = frozenset({bool, int, str, type(None)})
_FLOATS: Final = frozenset({"nan", "inf", "-inf"})
_MAX_DECIMAL_CHARS: Final = 10_000


class Opaque:
    """Of an object of no plain type: whether it counts as true, and its items if it is an iterator.  It equals nothing
    but itself."""

    def __init__(self, truth: bool, items: list[Any] | None) -> None:
        self.truth, self.items = truth, items

    def __bool__(self) -> bool:
        return self.truth

    def __iter__(self) -> Iterator[Any]:
        if self.items is None:
            raise TypeError("an object whose items are unknown")
        return iter(self.items)

    def __repr__(self) -> str:
        return "an object of no plain type"


def encode(value: Any, *, objects: bool = False) -> Any:
    """``value`` as JSON's values.  Objects of other types raise ``TypeError``; with ``objects`` they become opaque.

    Raises what methods of its own raise.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return _items(value, objects)
    if kind is tuple:
        return {"$tuple": _items(value, objects)}
    if kind is dict:
        return _mapping(value, objects)
    if kind is set or kind is frozenset:
        # In an order that depends on the items alone: a program may iterate over them.
        return {f"${kind.__name__}": sorted(_items(value, objects), key=_dumps)}
    return _other(value, objects)


def _items(values: Collection[Any], objects: bool) -> list[Any]:
    if set(map(type, values)) <= _SCALARS:
        return list(values)
    return [encode(value, objects=objects) for value in values]


def _mapping(value: dict[Any, Any], objects: bool) -> dict[str, Any]:
    if set(map(type, value)) <= {str} and not (len(value) == 1 and next(iter(value)).startswith("$")):
        return {key: encode(inner, objects=objects) for key, inner in value.items()}
    return {"$dict": [[encode(key, objects=objects), encode(inner, objects=objects)] for key, inner in value.items()]}


def _other(value: Any, objects: bool) -> Any:
    """A value of none of JSON's types; of a subclass, the value that it holds."""
    numpy, decimal, numbers, deque = (
        getattr(sys.modules.get(module), name, ())
        for module, name in (
            ("numpy", "generic"),
            ("decimal", "Decimal"),
            ("numbers", "Number"),
            ("collections", "deque"),
        )
    )
    if isinstance(value, numpy) and not isinstance(item := value.item(), numpy):
        return encode(item, objects=objects)
    for kind, plain in _PLAIN.items():
        if isinstance(value, kind):
            return encode(plain(value), objects=objects)
    if isinstance(value, bytes | bytearray):
        return {"$bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"$complex": [encode(value.real), encode(value.imag)]}
    if isinstance(value, decimal) and value.is_finite():
        return {"$decimal": str(value)}
    if isinstance(value, numbers) and (number := _number(value)) is not None:
        return number
    if isinstance(value, Opaque):
        return {"$object": [value.truth, None if value.items is None else _items(value.items, objects)]}
    if not objects:
        raise TypeError(f"{type(value).__name__} is no type of plain values")
    listed = isinstance(value, (Iterator, MappingView, range, deque))
    return {"$object": [bool(value), _items(list(value), objects) if listed else None]}


_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
"""The plain value of an instance of a subclass."""


def _number(value: Any) -> Any:
    """A number of a type that has said so; None where it has not said which."""
    import numbers

    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Rational):
        return {"$fraction": [int(value.numerator), int(value.denominator)]}
    if isinstance(value, numbers.Real):
        return encode(float(value))
    return encode(complex(value)) if isinstance(value, numbers.Complex) else None


def decode(tree: Any) -> Any:
    """The value that ``encode`` wrote as ``tree``; anything else raises ``ValueError``.

    ``tree`` may come from a program.  Its depth is bounded by the caller.
    """
    if type(tree) is list:
        return tree if set(map(type, tree)) <= _SCALARS else [decode(item) for item in tree]
    if type(tree) is not dict:
        return tree
    if len(tree) == 1:
        ((key, inner),) = tree.items()
        if key.startswith("$"):
            if key not in _DECODERS:
                raise ValueError(f"no kind of value: {key:.20}")
            return _DECODERS[key](inner)
    return {key: decode(inner) for key, inner in tree.items()}


def _list(tree: Any) -> list[Any]:
    if type(tree) is not list:
        raise ValueError("no list")
    return [decode(item) for item in tree]


def _distinct(keys: list[Any]) -> list[Any]:
    """Raises where they cannot be keys, or are made to collide, which would take the reader quadratic time."""
    try:
        if 2 * len({hash(key) for key in keys}) < len(keys):
            raise ValueError("keys with one hash")
    except TypeError as error:
        raise ValueError("keys that cannot be keys") from error
    return keys


def _dict(tree: Any) -> dict[Any, Any]:
    pairs = _list(tree)
    if not all(type(pair) is list and len(pair) == 2 for pair in pairs):
        raise ValueError("no pairs")
    return dict(zip(_distinct([key for key, _ in pairs]), [inner for _, inner in pairs], strict=True))


def _float(tree: Any) -> float:
    if type(tree) is not str or tree not in _FLOATS:
        raise ValueError("no float")
    return float(tree)


def _bytes(tree: Any) -> bytes:
    if type(tree) is not str:
        raise ValueError("no bytes")
    return bytes.fromhex(tree)


def _complex(tree: Any) -> complex:
    parts = _list(tree)
    if [type(part) for part in parts] != [float, float]:
        raise ValueError("no complex number")
    return complex(*parts)


def _fraction(tree: Any) -> Any:
    from fractions import Fraction

    parts = _list(tree)
    if [type(part) for part in parts] != [int, int] or parts[1] <= 0:
        raise ValueError("no fraction")
    return Fraction(*parts)


def _decimal(tree: Any) -> Any:
    from decimal import Decimal, InvalidOperation

    if type(tree) is not str or len(tree) > _MAX_DECIMAL_CHARS:
        raise ValueError("no decimal number")
    try:
        number = Decimal(tree)
    except InvalidOperation as error:
        raise ValueError("no decimal number") from error
    if not number.is_finite():
        raise ValueError("no finite decimal number")
    return number


def _opaque(tree: Any) -> Opaque:
    if type(tree) is not list or len(tree) != 2 or type(tree[0]) is not bool:
        raise ValueError("no object")
    return Opaque(tree[0], None if tree[1] is None else _list(tree[1]))


_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$tuple": lambda tree: tuple(_list(tree)),
    "$set": lambda tree: set(_distinct(_list(tree))),
    "$frozenset": lambda tree: frozenset(_distinct(_list(tree))),
    "$dict": _dict,
    "$float": _float,
    "$bytes": _bytes,
    "$complex": _complex,
    "$fraction": _fraction,
    "$decimal": _decimal,
    "$object": _opaque,
}

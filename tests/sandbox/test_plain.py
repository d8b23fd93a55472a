"""Values of all plain types on their way out of the sandbox, and what a program may write in their place."""

import json
import math
from collections import Counter, OrderedDict, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.sandbox import NO_VALUE, Call, Job, Limits, LocalSandbox, Opaque, encode, read_value

KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.fractions(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
VALUES = st.recursive(
    KEYS | st.complex_numbers(allow_nan=False) | st.decimals(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.sets(KEYS, max_size=3)
        | st.dictionaries(KEYS | st.just("$tuple"), inner, max_size=3)
    ),
    max_leaves=8,
)


def carried(value: Any) -> Any:
    return read_value(json.dumps(encode(value, objects=True), allow_nan=False).encode())


def types(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value), [*map(types, value)]
    return (type(value), [*map(types, value.values())]) if isinstance(value, dict) else type(value)


@settings(max_examples=30)
@given(VALUES)
def test_values_come_back_with_their_types(value: object) -> None:
    assert carried(value) == value and types(carried(value)) == types(value)


class Equal(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Equal(1), 1),
        (type("T", (tuple,), {"__eq__": lambda *_: True, "__iter__": None})((1, 2)), (1, 2)),
        (type("S", (str,), {"__str__": lambda _: "b", "__len__": lambda _: 9})("a"), "a"),
        (type("D", (dict,), {"items": lambda _: [(3, 4)]})({1: 2}), {1: 2}),
        (type("L", (list,), {"__iter__": lambda _: iter([3])})([1]), [1]),
        (type("F", (float,), {"__float__": lambda _: 2.0, "__repr__": lambda _: "2"})(1.5), 1.5),
        (namedtuple("Pair", "a b")(1, 2), (1, 2)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (IntEnum("E", "A").A, 1),  # type: ignore[attr-defined]
        (bytearray(b"a"), b"a"),
        (-math.inf, -math.inf),
    ],
)
def test_of_a_subclass_the_plain_value_is_carried(value: object, plain: object) -> None:
    assert carried(value) == plain and type(carried(value)) is type(plain)


@pytest.mark.parametrize(
    ("value", "truth", "items"),
    [
        (object(), True, None),
        (type("N", (), {"__len__": lambda _: 0})(), False, None),
        (iter([1, (2,)]), True, [1, (2,)]),
        (map(abs, [-1]), True, [1]),
        ({1: 2}.keys(), True, [1]),
        (range(0), False, []),
        (Decimal("nan"), True, None),
        (Decimal("sNaN"), True, None),
        (Opaque(False, [1]), False, [1]),
        (print, True, None),
    ],
)
def test_of_other_objects_truth_and_items_are_carried(value: object, truth: bool, items: list[object] | None) -> None:
    found = carried([value])[0]
    assert (bool(found), found.items) == (truth, items)
    assert found != value


def test_nan_is_carried_and_equals_nothing() -> None:
    assert math.isnan(carried(math.nan)) and carried(math.nan) != carried(math.nan)


COLLIDING = json.dumps({"$set": [number * (2**61 - 1) for number in range(1, 9000)]})


@pytest.mark.parametrize(
    "text",
    [
        *('{"$tuple": 1}', '{"$tuple": {"a": 1}}', '{"$other": 1}', '{"$": 1}', '{"$set": [[1]]}', '{"$set": [{}]}'),
        *('{"$dict": [[1]]}', '{"$dict": [[[1], 2]]}', '{"$dict": {}}', '{"$dict": [1, 2]}', '{"$float": 1}'),
        *('{"$float": "1"}', '{"$float": "0x1"}', '{"$bytes": "0"}', '{"$bytes": [1]}', '{"$complex": [1]}'),
        *('{"$complex": ["a", "b"]}', '{"$fraction": [1, 0]}', '{"$fraction": [1.0, 2]}', '{"$fraction": [1, -2]}'),
        *('{"$decimal": "nan"}', '{"$decimal": "sNaN"}', '{"$decimal": "1e9999999999999999999"}', '{"$decimal": 1}'),
        *('{"$decimal": "x"}', '{"$object": [1, null]}', '{"$object": [true]}', '{"$object": [true, 5]}', COLLIDING),
        '{"$tuple": [' * 60 + "1" + "]}" * 60,
    ],
)
def test_what_no_value_is_written_as_is_refused(text: str) -> None:
    assert read_value(text.encode()) is NO_VALUE


@pytest.mark.parametrize(
    "value", [(1, (2, {3})), {(1, 2): b"x", 3: {4}}, {"$tuple": [1]}, 1j, math.inf, Fraction(1, 3)]
)
async def test_arguments_and_values_pass_the_sandbox(sandbox: LocalSandbox, value: object) -> None:
    result = await sandbox.run(Job("def f(x, *, y): return [repr(x), x, y]", entry=Call("f", [value], {"y": value})))
    assert (result.verdict, result.value) == ("ok", [repr(value), value, value]), result.errors


@pytest.mark.parametrize(
    ("source", "verdicts"),
    [
        ("x = []\nx.append(x)\ndef f(): return x", {"crash"}),
        ("x = {}\nx[1] = x\ndef f(): return x", {"crash"}),
        ("def f():\n    x = ()\n    for _ in range(10**5): x = (x,)\n    return x", {"crash"}),
        ("class A:\n    __class__ = int\ndef f(): return A()", {"crash"}),
        ("class A:\n    def __bool__(self): raise ValueError\ndef f(): return A()", {"crash"}),
        ("class A:\n    __bool__ = lambda self: 1\ndef f(): return A()", {"crash"}),
        ("import itertools\ndef f(): return itertools.count()", {"timeout", "memory"}),
        ("def f(): return range(10**12)", {"timeout", "memory"}),
        ("def f(): return 10**5000", {"ok"}),
        ("def f(): return '\\ud800'", {"ok"}),
    ],
)
async def test_what_cannot_be_carried_is_an_outcome(sandbox: LocalSandbox, source: str, verdicts: set[str]) -> None:
    result = await sandbox.run(Job(source, entry=Call("f")), Limits(cpu_s=0.3, memory_mib=64))
    assert result.verdict in verdicts and result.value is NO_VALUE

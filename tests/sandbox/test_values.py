import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.sandbox import NO_VALUE, equal_values, parse_value

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN)
def test_json_comes_back_and_equals_itself(value: object) -> None:
    parsed = parse_value(json.dumps(value).encode())
    assert parsed == value
    assert equal_values(parsed, value)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"1 2", b"[1", b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"[" * 101 + b"]" * 101, b'"\\ud800"'),
        *(b'{"\\ud800": 1}', b"\xff", b"[" * 100_000, b"(1)", b"__import__('os')"),
    ],
)
def test_refused(data: bytes) -> None:
    assert parse_value(data) is NO_VALUE


def test_depth_of_a_hundred_is_allowed() -> None:
    assert parse_value(b"[" * 99 + b"]" * 99) is not NO_VALUE


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        *((True, 1), (1, True), (1, 1.0), (1.0, 1), ("1", 1), (None, False), ([1], [1, 2]), ([1, 2], [1]), ({}, [])),
        *(({"a": 1}, {"a": 1, "b": 2}), ([True], [1]), (NO_VALUE, None), (0.1 + 0.2, 0.3), ("é", "e\u0301")),
    ],
)
def test_different(found: object, expected: object) -> None:
    assert not equal_values(found, expected)


@pytest.mark.parametrize(("found", "expected"), [([1, 2], (1, 2)), ({"1": 2}, {1: 2}), ([0.5], [0.5])])
def test_equal(found: object, expected: object) -> None:
    assert equal_values(found, expected)


def test_nothing_equals_nan_or_a_tuple() -> None:
    assert not equal_values(math.nan, math.nan) and not equal_values((1, 2), (1, 2))

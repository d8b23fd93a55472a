"""Values against what a test asks of them; the assertions themselves, run in Python, say what is right."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from troupe.envs.code.assertions import parse_assertions
from troupe.envs.code.comparison import JSON, same_json, shown
from troupe.sandbox import Opaque


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (1, 1.0, True),
        (1.0, 1, True),
        ([1.0, [2]], [1, [2.0]], True),
        (True, 1, True),  # as the benchmarks' own judges: Python's ==
        (1, True, True),
        (False, 0.0, True),
        ({"a": [1.0, True]}, {"a": [1, 1]}, True),
        ((1, (2,)), [1, [2]], True),  # JSON has no tuples
        ({1: 2, None: 3}, {"1": 2, "null": 3}, True),
        ({1: 2, "1": 3}, {"1": 3}, False),
        ({(1,): 2}, {"1": 2}, False),
        ({1, 2}, [1, 2], False),
        (Fraction(1, 2), 0.5, True),
        (Fraction(1, 3), 0.3333333, True),
        (Fraction(1, 3), 0, False),
        (Decimal("0.5"), 0.5, True),
        (Decimal("2"), 2, True),
        (Decimal("1e999999"), 1.0, False),
        (2 + 0j, 2, True),
        (2 + 1j, 2.0, False),
        (math.inf, 1.0, False),
        (math.nan, 1.0, False),
        (True, 2, False),
        ({"a": 1}, {"a": 1, "b": 1}, False),
        ({"a": 1}, {"b": 1}, False),
        ([], {}, False),
        ([1], 1, False),
        (0, None, False),
        ("", 0, False),
        (10**400, 1.0, False),
        (10**400, 10**400, True),
        (float(2**53), 2**53 + 1, False),
        (1.5, 1, False),
        ("1", 1, False),
        (None, False, False),
        ([1], [1, 2], False),
        (0.3000001, 0.3, True),
        (0.31, 0.3, False),
        (0.0, 1e-9, False),  # 1e-6 is relative
        (1e-9, 0.0, False),
        (1.0000001e-9, 1e-9, True),
        (5.6e-17, 0.0, True),  # the rounding error of a sum that cancels
        (0.0, 5.6e-17, True),
    ],
)
def test_equal_in_json(value: object, expected: object, same: bool) -> None:
    assert same_json(value, expected, 1e-6) == same


VALUES = [
    *(1, 1.0, True, 0, False, None, "", "a", [], [1], (), (1,), [True], [[1]], ((1,),), [(1,)], {1}, {1.0}, set()),
    *(frozenset({1}), frozenset(), {}, {1: 2}, {"1": 2}, {1.0: 2}, b"", b"a", 1j, 1 + 0j, 0.1 + 0.2, 0.3, Fraction(1)),
    *(Fraction(3, 10), Decimal("0.3"), Decimal(1), math.inf, -math.inf, math.nan, [1, 2], (1, 2), [2, 1], {1, 2}),
    *(2**53, float(2**53), 2**53 + 1, 10**400, "1", ["1"], 0.5, 1.5, 1.4999, {"a": (1, [2])}, {"a": [1, [2]]}),
]
WRITTEN = ("Fraction", "Decimal", "inf", "nan", "frozenset()")
ASSERTIONS = [
    *("f(0)", "not f(0)", "f(0) is True", "f(0) is None", "f(0) is False"),
    *(f"f(0) == {value!r}" for value in VALUES if not any(word in repr(value) for word in WRITTEN)),
    *("set(f(0)) == {1, 2}", "set(f(0)) == set([1])", "tuple(f(0)) == (1, 2)", "list(f(0)) == [1]"),
    *("sorted(f(0)) == [1, 2]", "frozenset(f(0)) == {1}", "list(f(0)) == ['a']"),
    *("abs(f(0) - 1) < 0.5", "abs(f(0) - 1) <= 0.5", "abs(f(0) - 0.3) < 1e-9", "abs(f(0) - 1j) < 0.1"),
    *("math.isclose(f(0), 1.5)", "math.isclose(f(0), 1.5, rel_tol=0.001)", "math.isclose(f(0), 0.3, abs_tol=0.5)"),
]


@pytest.mark.parametrize("assertion", ASSERTIONS)
def test_a_value_passes_where_the_assertion_does(assertion: str) -> None:
    (check,) = parse_assertions(f"assert {assertion}", {"f": "f"}).suite
    for value in VALUES:
        try:
            right = bool(eval(assertion, {"f": lambda _, value=value: value, "math": math}))
        except (TypeError, OverflowError):
            right = False
        assert check.rule.accepts(value, check.rule.value(check.expected), 1e-6) == right, value


def test_of_an_object_the_truth_and_the_items_count() -> None:
    some, none = Opaque(True, [1, 2]), Opaque(False, None)
    accepted = {
        text: [check.rule.accepts(value, check.rule.value(check.expected), 0.0) for value in (some, none)]
        for text in ("f()", "not f()", "f() == [1, 2]", "list(f()) == [1, 2]", "f() is True", "abs(f() - 1) < 1")
        for check in parse_assertions(f"assert {text}", {"f": "f"}).suite
    }
    assert accepted == {
        "f()": [True, False],
        "not f()": [False, True],
        "f() == [1, 2]": [False, False],
        "list(f()) == [1, 2]": [True, False],
        "f() is True": [False, False],
        "abs(f() - 1) < 1": [False, False],
    }


@pytest.mark.parametrize("value", [(1, {2}), {(1,): 2}, Fraction(1, 2), b"a", Opaque(True, None), math.nan, 1j])
def test_every_value_can_be_shown(value: object) -> None:
    assert shown(value, JSON)

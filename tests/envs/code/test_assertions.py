"""Assertions read as tests."""

import pytest

from troupe.envs.code.assertions import parse_assertions
from troupe.envs.code.comparison import EQUAL, Rule
from troupe.envs.code.problem import Check

TRUTH, SAME = Rule("truth"), Rule("identical")
PAIR = '{"$tuple": [2, 3]}'


@pytest.mark.parametrize(
    ("assertion", "check"),
    [
        ("candidate(1, 'a') == [1, (2, 3)]", Check('[1, "a"]', f"[1, {PAIR}]", EQUAL)),
        ("candidate((2, 3)) == {(2, 3)}", Check(f"[{PAIR}]", f'{{"$set": [{PAIR}]}}', EQUAL)),
        ("candidate([3 * 19, 'ab' + 'c']) == 3 * -2.5", Check('[[57, "abc"]]', "-7.5", EQUAL)),
        ("candidate([1, 2**3]) == 0**0", Check("[[1, 8]]", "1", EQUAL)),
        ("candidate(1) == -2+1e-9j", Check("[1]", '{"$complex": [-2.0, 1e-09]}', EQUAL)),
        ("candidate(2) is True", Check("[2]", "true", SAME)),
        ("candidate(2) is None", Check("[2]", "null", SAME)),
        ("candidate(2)", Check("[2]", "true", TRUTH)),
        ("not f(2)", Check("[2]", "false", TRUTH)),
        ("candidate({'a': None}) == {}, 'message'", Check('[{"a": null}]', "{}", EQUAL)),
        ("candidate({1: 2}) == 2", Check('[{"$dict": [[1, 2]]}]', "2", EQUAL)),
        ("candidate({1, 2}) == b'a'", Check('[{"$set": [1, 2]}]', '{"$bytes": "61"}', EQUAL)),
        ("candidate(1, n=(2, 3)) == 2", Check(f'{{"$tuple": [[1], {{"n": {PAIR}}}]}}', "2", EQUAL)),
        ("abs(candidate(1.5) - 0.5) < 1e-6", Check("[1.5]", "0.5", Rule("within", absolute=1e-6))),
        ("math.isclose(f(1), 2, rel_tol=0.5)", Check("[1]", "2", Rule("isclose", relative=0.5))),
        ("isclose(f(1), 2, abs_tol=0.5)", Check("[1]", "2", Rule("isclose", relative=1e-9, absolute=0.5))),
        ("tuple(candidate([1])) == tuple([2, 3])", Check("[[1]]", PAIR, Rule("equal", "tuple"))),
        ("set(f(1)) == set([2])", Check("[1]", '{"$set": [2]}', Rule("equal", "set"))),
        ("sorted(f(1)) == sorted([2, 1])", Check("[1]", "[1, 2]", Rule("equal", "sorted"))),
        ("candidate(2) is 1000", None),
        ("set(f(1)) == set(2)", None),
        ("set(f(1)) == set([[]])", None),
        ("math.isclose(f(1), 2, tol=1)", None),
        ("math.isclose(2, f(1))", None),
        ("candidate(1) == g(2)", None),
        ("candidate(x) == 2", None),
        ("candidate(1) > 2", None),
        ("candidate(1) == candidate(2)", None),
        ("candidate(*[1]) == 2", None),
        ("candidate(**{}) == 2", None),
        ("candidate(1) == 1 < 2", None),
        ("candidate('a' * 10 ** 12) == 2", None),
        ("candidate('a' * 1000000000000) == 2", None),
        ("candidate(1 / 0) == 2", None),
        ("abs(candidate(1) - 2) < 'x'", None),
        ("abs(candidate(1) - 2) < -1", None),
        ("abs(candidate(1) - 2) < 1e999", None),
        ("abs(candidate(1) - 2) < 9**64", None),
        ("candidate(" + "(1 + " * 90 + "1" + ")" * 90 + ") == 2", Check("[91]", "2", EQUAL)),
        ("candidate(9**9**9) == 2", None),
        ("candidate(2.0**2) == 4", None),
        ("candidate(float('nan')) == 2", None),
        ("other(1) == 2", None),
        ("candidate(1) == ...", None),
        ("candidate({1: ...}) == 1", None),
        (f"candidate(1) == 0x{'f' * 4000}", None),
    ],
)
def test_assertions(assertion: str, check: Check | None) -> None:
    parsed = parse_assertions(f"def check(candidate):\n    assert {assertion}\n", {"candidate": "f", "f": "f"})
    assert (parsed.suite, parsed.refused) == (((), 1) if check is None else ((check,), 0))


def test_a_limit_that_counts_itself() -> None:
    (check,) = parse_assertions("assert abs(f(1) - 2) <= 0.5", {"f": "f"}).suite
    assert check.rule.accepts(2.5, 2, 0.0) and not check.rule.accepts(2.5000001, 2, 0.0)


def test_a_long_value_is_refused() -> None:
    parsed = parse_assertions(
        f"def check(candidate):\n    assert candidate('{'a' * 100_001}') == 2\n", {"candidate": "f"}
    )
    assert (parsed.suite, parsed.refused) == ((), 1)


def test_assertions_in_loops_are_refused_and_constants_left_out() -> None:
    source = "def check(candidate):\n    assert True\n    for i in range(3):\n        assert candidate(i) == i\n"
    parsed = parse_assertions(source, {"candidate": "f"})
    assert (parsed.suite, parsed.refused) == ((), 1)

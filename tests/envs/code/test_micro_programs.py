"""Micro-programs: notations, values, digests."""

from itertools import permutations, product

import pytest

from troupe.envs.code.micro import (
    HIDDEN,
    INPUTS,
    LARGEST_OUTPUT,
    OPERATORS,
    SMALLEST_OUTPUT,
    Program,
    distinguishing_inputs,
    format_tests,
    read_expression,
    read_tests,
    vocabulary,
)
from troupe.envs.code.problem import Check, CheckResult

PRODUCT_LESS_A = Program(("b", "c", "a"), ("*", "-"), True)
SHAPES = [Program(("a", "b", "c"), ops, left) for ops in product(OPERATORS, repeat=2) for left in (True, False)]


def test_a_program_in_every_notation() -> None:
    assert PRODUCT_LESS_A.text == "( b * c ) - a"
    assert PRODUCT_LESS_A.shape == "( b ? c ) ? a"
    assert PRODUCT_LESS_A.spec == "( b times c ) minus a"
    assert PRODUCT_LESS_A((2, 5, 3)) == 7
    assert Program(("b", "c", "a"), ("-", "*"), False).text == "b - ( c * a )"


@pytest.mark.parametrize("program", SHAPES, ids=lambda program: program.text)
def test_programs_are_what_python_makes_of_them(program: Program) -> None:
    for row in (*INPUTS, *HIDDEN):
        assert program(row) == eval(program.text, dict(zip("abc", row, strict=True)))


@pytest.mark.parametrize("program", SHAPES, ids=lambda program: program.text)
def test_hidden_tests_distinguish_all_programs_of_a_shape(program: Program) -> None:
    assert not {*HIDDEN} & {*INPUTS} and len({program(row) for row in HIDDEN}) == len(HIDDEN)
    for rival in program.rivals:
        same = [rival(row) == program(row) for row in HIDDEN]
        assert all(same) if rival.digest == program.digest else not any(same)
    assert distinguishing_inputs(program) and all(SMALLEST_OUTPUT <= program(row) <= LARGEST_OUTPUT for row in INPUTS)


def test_programs_that_compute_the_same_share_a_digest() -> None:
    same = ["( a + b ) + c", "( b + a ) + c", "a + ( b + c )", "c + ( a + b )"]
    digests = {
        program.text: program.digest
        for names in permutations("abc", 3)
        for program in (Program(names, ops, left) for ops in product(OPERATORS, repeat=2) for left in (True, False))
    }
    assert len({digests[text] for text in same}) == 1
    assert len(set(digests.values())) == 26  # 108 texts


def test_no_word_means_two_things() -> None:
    words = vocabulary()
    assert len(words) == len(set(words))


# ---- the notation of tests and expressions at laptop scale -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2 5 3 is 7", 1),
        (" 2 5\n3 is 7 ; 1 1 1 is 0 ", 2),
        ("2 5 3 is 7 ; 2 5 3 is 7", 1),  # once
        ("2 5 3 is -24", 1),
        ("2 5 3 is 7 ; 2 5 3 is 8", None),  # contradictory
        ("2 5 3 is 7 ; 1 1 1 is 0 ; 1 1 2 is 1", None),  # more than two
        ("2 5 3 is 7 ;", None),
        ("2 5 3 is 7 1 1 1 is 0", None),
        ("2 5 3 is 126", None),
        ("2 5 6 is 7", None),
        ("2 5 0 is 7", None),
        ("2 5 3 is x", None),
        ("2 5 is 7", None),
        ("02 5 3 is 7", None),
        ("( b * c ) - a", None),
        ("", None),
    ],
)
def test_messages_of_tests(text: str, count: int | None) -> None:
    tests = read_tests(text, 2)
    assert (None if tests is None else len(tests)) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("( b * c ) - a", "( b * c ) - a"),
        ("b *  c\n- a", "b * c - a"),
        ("7", "7"),
        ("b * *", "b * *"),  # no Python, but that is for the sandbox to say
        ("b ** c", None),
        ("b * x", None),
        ("b if c else a", None),
        ("a + a + a + a + a + a + a", None),  # 13 words
        ("", None),
    ],
)
def test_messages_of_expressions(text: str, expected: str | None) -> None:
    assert read_expression(text) == expected


def test_tests_are_written_with_the_outputs_of_the_program() -> None:
    suite = (Check("2 5 3", "7"), Check("1 1 1", "0"))
    assert format_tests(suite) == "2 5 3 is 7 ; 1 1 1 is 0"
    assert (
        format_tests(suite, (CheckResult(True, False, "13"), CheckResult(False, False, "none")))
        == "2 5 3 is 7 got 13 ; 1 1 1 is 0 got none"
    )
    assert format_tests(()) == "none"

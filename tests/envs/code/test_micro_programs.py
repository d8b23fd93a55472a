"""Micro-programs: notations, values, digests."""

from itertools import permutations, product

import pytest

from troupe.envs.code.micro_programs import (
    HIDDEN,
    INPUTS,
    LARGEST_OUTPUT,
    OPERATORS,
    SMALLEST_OUTPUT,
    Program,
    distinguishing_inputs,
    vocabulary,
)

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

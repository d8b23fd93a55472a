"""Problems and their parts."""

import pytest

from troupe.envs.code.problem import Check, Problem


def test_problems_without_tests_cannot_be() -> None:
    with pytest.raises(ValueError, match="problem p has no hidden tests"):
        Problem("p", "", ())
    with pytest.raises(ValueError, match="problem p has a test script, which needs"):
        Problem("p", "", (), script="def check(candidate): pass")


@pytest.mark.parametrize(
    "script",
    [
        "assert eval(candidate()) == 4",
        "exec(candidate())",
        "from builtins import eval as value\n    assert value(candidate()) == 4",
        "import pickle\n    pickle.loads(candidate())",
        "import pandas\n    assert pandas.eval(candidate()) == 4",
    ],
)
def test_a_script_that_may_run_answers_as_code_is_refused(script: str) -> None:
    text = f"def check(candidate):\n    {script}\n"
    with pytest.raises(ValueError, match="problem p: its test script may run answers as code, by "):
        Problem("p", "", (), function="f", reference="", script=text)
    helper, script = "def value(text): return eval(text)", "def check(candidate): value(candidate())"
    with pytest.raises(ValueError, match="by eval"):
        Problem("p", "", (), function="f", reference="", setup=helper, script=script)


def test_a_script_that_compiles_a_pattern_is_not() -> None:
    script = "import re\ndef check(candidate): assert re.compile('a').match(candidate())"
    assert Problem("p", "", (), function="f", reference="", script=script).script == script


def key(statement: str) -> str:
    return Problem("p", statement, (Check("", ""),)).key


SIGNS = ("+", "-", "*", "<", ">", "/", "%", "==", "!=", "<=", "**", "|", "&", "^", "")


@pytest.mark.parametrize(
    "statements",
    [
        [f"Print a {sign} b." for sign in SIGNS],
        ["1.5 times 4", "15 times 4", "1,5 times 4", "1:5 times 4"],
        ["(a + b) * c", "a + b * c", "[a + b] * c"],
        ["print 'a'", "print a", "print `a`"],
        ["print n!", "print n"],
        ["print 10!", "print 10"],
        ["print -x", "print x", "print ~x"],
        ["print a_b", "print ab", "print a b"],
        ["x², then", "x2, then"],
        ["x → y", "x ← y"],
        ["a.b()", "a b()"],
        ["", "+"],
    ],
)
def test_statements_that_ask_for_different_programs_have_different_keys(statements: list[str]) -> None:
    assert len(set(map(key, statements))) == len(statements)


@pytest.mark.parametrize(
    "other",
    [
        "print the sum of a+b, please",
        "PRINT the  sum\nof a + b, please.",
        "Print the sum of a + b; please!\n\n!",
        "\u00a0print the sum: of a + b please?",
    ],
)
def test_case_blanks_and_the_marks_of_sentences_do_not_count(other: str) -> None:
    assert key("Print the sum of a + b, please.") == key(other)

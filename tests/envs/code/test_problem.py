"""Problems and their parts."""

import pytest

from troupe.envs.code.problem import Problem


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

"""Functions are found in messages of any kind, and nothing else of a message counts."""

import ast
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.code_collab.functions import MAX_CHARS, has_return, parse, read_function

AUX = "def aux(x):\n    return x + 1"


@pytest.mark.parametrize(
    "message",
    [
        AUX,
        f"```python\n{AUX}\n```",
        f"```\n{AUX}\n```\nThat is all.",
        f"Here is my function.\n\n{AUX}\n\nIt adds one.",
        f"Here is my function.\n\n{AUX}\n# Use it so:\nprint aux(1)",
        f"import os\n{AUX}\nprint(aux(3))",
        f"@cache\n{AUX}",
        f"def other(y):\n    return y\n\n{AUX}",
        f"{AUX}\n\ndef aux(x):\n    return 0",
        f"    {AUX.replace(chr(10), chr(10) + '    ')}\nbroken(",
    ],
)
def test_the_function_alone_is_read(message: str) -> None:
    assert read_function(message, "aux") == AUX


def test_a_signature_over_several_lines() -> None:
    source = "def aux(\n    x,\n    y,\n) -> int:\n    return x"
    assert read_function(f"{source}\n\naux(1, 2)", "aux") == source


SIGNATURE = "def aux(\n    xs: list[int],\n) -> int:\n    return sum(xs)"
COMMENT = "def aux(x):\n    y = x + 1\n# at the margin\n    return y"
STRING = 'def aux(x):\n    text = """\nat the margin\n"""\n    return text + x'


@pytest.mark.parametrize("source", [SIGNATURE, COMMENT, STRING])
@pytest.mark.parametrize(
    "message",
    [
        "Here it is:\n```python\n{}\n```\nIt's done.",
        "Here it is:\n```python\nimport os\n{}\n\nprint(1)\n```\nUse it so:\n```\naux(3)\n```",
        "Here it is:\n```python\n{}",  # cut off before the fence's end
        "Here it is:\n{}\nIt's done.",
        "Here it is:\n```text\n{}\n```",
    ],
)
def test_code_at_the_margin_does_not_end_a_function(source: str, message: str) -> None:
    assert read_function(message.format(source), "aux") == source


def test_of_several_blocks_the_first_with_the_function_counts() -> None:
    other = AUX.replace("1", "2")
    assert read_function(f"Use it so:\n```\naux(3)\n```\nIt is:\n```\n{AUX}\n```\nOr:\n```\n{other}\n```", "aux") == AUX


def test_cutting_out_ends_in_time() -> None:
    """20,000 characters at the margin after a bracket that does not close."""
    start = time.process_time()
    assert read_function("def aux(\n" + "x\n" * 9900, "aux") == "def aux("
    assert time.process_time() - start < 5


@pytest.mark.parametrize("message", ["", "aux = 3", "def auxiliary(x): return x", "class A:\n    pass", "def aux"])
def test_there_may_be_none(message: str) -> None:
    assert read_function(message, "aux") == ""


def test_a_message_that_is_too_long_has_none() -> None:
    assert read_function(f"{AUX}\n#{'x' * MAX_CHARS}", "aux") == ""


def test_a_function_that_is_no_python_is_cut_out() -> None:
    message = "def total(xs):\n    return sum(xs\n\n    x = 1\nprint(total([1]))"
    assert read_function(message, "total") == "def total(xs):\n    return sum(xs\n\n    x = 1"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (AUX, True),
        ("def aux(x): return x", True),
        ("def aux(x):\n    if x:\n        return x", True),
        ("def aux(x):\n    print(x)", False),
        ("def aux(x):\n    return", False),
        ('def aux(x):\n    """return x"""', False),
        ("def aux(x):\n    def inner():\n        return x\n    inner()", False),
        ("def aux(x):\n    f = lambda: x", False),
        ("def aux(x):\n    return (x", True),  # no Python: by the word
        ("def aux(x):\n    print((x", False),
        ("", False),
    ],
)
def test_a_return_value(source: str, expected: bool) -> None:
    assert has_return(source, "aux") is expected


@pytest.mark.parametrize(
    "source",
    ["(" * 9000, "-" * 19_000 + "1", "1" + "+1" * 9000, "a" + ".b" * 9000, "a\0b", "'\ud800'", "1" * 9000, "x = '\\d'"],
)
def test_parsing_ends_with_a_tree_or_a_reason(source: str) -> None:
    assert isinstance(parse(source), ast.Module | str)
    assert read_function(source, "aux") == ""


@given(st.text(max_size=200) | st.text(alphabet="defaux(): \n`returnx=1\"'", max_size=200))
def test_any_text_is_read(text: str) -> None:
    source = read_function(text, "aux")
    has_return(source, "aux")
    source.encode()

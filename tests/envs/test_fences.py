"""Fenced blocks of Markdown, and thoughts."""

import pytest

from troupe.envs.fences import fenced_blocks, in_fence, last_program, spoken


def test_a_fence_within_a_line_closes_nothing() -> None:
    assert fenced_blocks("```python\nx = '```'\n```\n") == [("python", "x = '```'")]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("````python\n```\nx\n```\n````", [("python", "```\nx\n```")]),
        ("````\nx\n`````", [("", "x")]),
        ("~~~py\n```\n~~~", [("py", "```")]),
        ("```\nx\n~~~\n```", [("", "x\n~~~")]),
        ("```python\nprint(1)```", [("python", "print(1)")]),
        ("```python\nx = 1\nprint(x)```  \nIt prints\n```\n1\n```", [("python", "x = 1\nprint(x)"), ("", "1")]),
        ("```python\n'''Wrap it in ```\n'''\nx = 1\n```", [("python", "'''Wrap it in ```\n'''\nx = 1")]),
        ('```python\n"""Of ```x```"""\n# see ```y```\n```', [("python", '"""Of ```x```"""\n# see ```y```')]),
        ("````python\nprint(1)```\n````", [("python", "print(1)```")]),
        ("- x\n   ```python\n   if x:\n     y\n\n   ```", [("python", "if x:\n  y\n")]),  # in a list
        ("```x = 1```\n```\ny\n```", [("", "y")]),  # the first is code within a line
        ("````\nx\n```", []),
        ("```\nx", []),
    ],
)
def test_blocks(text: str, blocks: list[tuple[str, str]]) -> None:
    assert fenced_blocks(text) == blocks


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nprint(1)\n```\nOutput:\n```\n1\n```", "print(1)"),
        ("```\nx\n```\n```\ny\n```", "y"),
        *((f"```{label}\nx\n```\n```\n1\n```", "x") for label in ("python3.11", "Python 3", "py3", "{.python}")),
        *((f"```{label}\nx\n```", None) for label in ("pycon", "python-repl", "pytb", "text", "cpython", "python_2")),
        ("So\n```python\nx = 1\n</think>\n```python\nx = 2\n```", "x = 2"),  # never closed in the thought
        ("```python\nx = 1\n```</think>It is 5.", None),
        ("<think>a</think>b</think>```py\nx\n```", "x"),
        ("<think>\n```py\nx\n```", None),  # no end of a thought
    ],
)
def test_the_program_of_a_message(text: str, program: str | None) -> None:
    assert last_program(spoken(text)) == program


@pytest.mark.parametrize("program", ["x = 1", "x = '''\n```\n'''", "x = '''\n`````python\n'''", "# ```", "", "`"])
def test_what_is_put_into_a_fence_comes_back(program: str) -> None:
    assert last_program(in_fence(program, "python")) == program


# ---- thoughts are no part of a message -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("a", "a"),
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),  # the prompt opened the thoughts
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>a", ""),
        ("a</think>b<think>c", "b"),
        ("<think></think>", ""),
        ("", ""),
    ],
)
def test_what_is_spoken(message: str, text: str) -> None:
    assert spoken(message) == text

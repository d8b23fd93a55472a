"""The fenced blocks of a message in Markdown, and the message without the thoughts of a model that reasons first."""

from __future__ import annotations

import re
from typing import Final

_FENCE: Final = re.compile(r"(`{3,}|~{3,})([^`]*)")
_PYTHON: Final = re.compile(r"\{?\.?(python|py)[\d.]*(?![\w.-])")


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """(Label, content) of the fenced blocks of Markdown; an unclosed one is none.

    A block ends at a line of as many of its marks as it begins with, or of more.  Models also write the marks at the
    end of the last line of a program, where Markdown knows none; within a text of several lines they end nothing there.
    A block in a list is indented, and its lines lose as much.
    """
    blocks: list[tuple[str, str]] = []
    fence, label, quotes, indent = "", "", 0, 0
    lines: list[str] = []
    for line in text.split("\n"):
        mark = line.strip()
        if not fence:
            match = _FENCE.fullmatch(mark)
            if match:
                fence, label, quotes, lines = match[1], match[2].strip().lower(), 0, []
                indent = len(line) - len(line.lstrip(" "))
            continue
        line = line[min(indent, len(line) - len(line.lstrip(" "))) :]
        code = mark.rstrip(fence[0])
        quotes += line.count('"""') + line.count("'''")
        in_text = code and (quotes % 2 or fence in code)
        if len(mark) - len(code) < len(fence) or in_text:
            lines.append(line)
            continue
        blocks.append((label, "\n".join([*lines, line.rstrip().rstrip(fence[0])] if code else lines)))
        fence = ""
    return blocks


def in_fence(text: str, label: str = "") -> str:
    """``text`` in a fence that it cannot close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{label}\n{text}\n{fence}"


def last_program(text: str) -> str | None:
    """The content of the last block labelled Python; where there is none, of the last one without a
    label; None where there is none of these.

    What follows a program in a block without a label is its output.
    """
    blocks = fenced_blocks(text)
    programs = [content for label, content in blocks if _PYTHON.match(label)] or [
        content for label, content in blocks if not label
    ]
    return programs[-1] if programs else None


OPEN, CLOSE = "<think>", "</think>"


def spoken(message: str) -> str:
    """``message`` without its thoughts: what follows the last ``</think>``, to a ``<think>`` that is not closed.

    A template may open the thoughts in the prompt, so that a message needs no ``<think>`` of its own.
    """
    return message.rpartition(CLOSE)[2].partition(OPEN)[0]

"""The fenced blocks of a message in Markdown."""

from __future__ import annotations


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """(Label, content) of the fenced blocks of Markdown; an unclosed one is none."""
    blocks: list[tuple[str, str]] = []
    label: str | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        mark = line.strip()
        if label is None and mark.startswith("```"):
            label, lines = mark[3:].strip().lower(), []
        elif label is not None and mark == "```":
            blocks.append((label, "\n".join(lines)))
            label = None
        elif label is not None:
            lines.append(line)
    return blocks


def last_program(text: str) -> str | None:
    """The content of the last block labelled Python, or not at all; None where there is none."""
    programs = [content for label, content in fenced_blocks(text) if label in ("", "python", "python3", "py")]
    return programs[-1] if programs else None

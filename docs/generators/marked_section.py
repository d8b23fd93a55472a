"""Write a section of a page anew, between two marks."""

from __future__ import annotations

from pathlib import Path


def with_section(page: Path, begin: str, end: str, section: str) -> str:
    """The text of ``page`` with ``section`` between the marks ``begin`` and ``end``.

    Raises ``ValueError`` where the page lacks the marks.
    """
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"{page} lacks the marks {begin.strip()} and {end.strip()}")
    return f"{before}{begin}\n{section}\n{end}{after}"

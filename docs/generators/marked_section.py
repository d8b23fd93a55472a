"""Write a section of a page anew, between two marks."""

from __future__ import annotations


def with_section(text: str, begin: str, end: str, section: str) -> str:
    """``text``, a page, with ``section`` between the marks ``begin`` and ``end``.

    Raises ``ValueError`` where the page lacks the marks.
    """
    before, _, rest = text.partition(begin)
    _, mark, after = rest.partition(end)
    if not mark:
        raise ValueError(f"the page lacks the marks {begin.strip()} and {end.strip()}")
    return f"{before}{begin}\n{section}\n{end}{after}"

"""A table of texts: what sweeps hand to pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlainTable:
    """``heads`` and ``lines`` of one length, with a ``note`` below."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""

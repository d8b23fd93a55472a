"""Delegation as a table: who was called for which name, and what they replied.

A row per name that is asked for or was called for, a column per worker.  Green: the worker has the number and it is
asked for; orange: a useless call.  ``?`` waits for the reply, ``–`` is the reply that there is no number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from html import escape

from ..drawing import SVG, Drawing
from .directory import HOLDERS, NONE, WORKERS

ORANGE, GREEN = "#e08a2c", "#22a06b"
ROW, COLUMN, LABEL = 10, 18, 14
"""Height of a row, widths of a worker's column and of the names' column, in units of the picture."""

Call = tuple[str, str]
"""A name and the worker that is called for its number."""


def draw_calls(asked: Collection[str], made: Collection[Call], replies: Mapping[Call, str]) -> Drawing:
    """``made``: the calls so far; ``replies``: what the workers said, the calls without one wait."""
    names = list(dict.fromkeys([*asked, *(name for name, _ in made)]))
    width, height = LABEL + COLUMN * len(WORKERS), ROW * (len(names) + 1)
    parts = [
        '<path fill="none" stroke="currentColor" stroke-opacity=".2" stroke-width=".4" '
        f'd="{_lines(len(names), width)}"/>',
        '<g font-family="ui-sans-serif,sans-serif" font-size="5" text-anchor="middle" fill="currentColor">',
        *(_label(LABEL + COLUMN * (place + 0.5), 0, worker) for place, worker in enumerate(WORKERS)),
    ]
    lines = ["     " + "".join(f"{worker:>7}" for worker in WORKERS)]
    for row, name in enumerate(names, start=1):
        parts.append(_label(LABEL / 2, row, name, "" if name in asked else ' fill-opacity=".5"'))
        signs = []
        for place, worker in enumerate(WORKERS):
            if (name, worker) not in made:
                signs.append(f"[bright_black]{'·':>7}[/]")
                continue
            is_useful = name in asked and HOLDERS[name] == worker
            reply = replies.get((name, worker), "?")
            sign = "–" if reply == NONE else reply
            signs.append(f"[{'green' if is_useful else 'orange3'}]{sign:>7}[/]")
            parts.append(_cell(LABEL + COLUMN * place, row, sign, GREEN if is_useful else ORANGE))
        lines.append(f"{name:<5}" + "".join(signs))
    title = f"Delegation: {len(made)} calls, {len(replies)} replies"
    svg = (
        f'<svg xmlns="{SVG}" viewBox="0 0 {width} {height}" role="img"><title>{title}</title>{"".join(parts)}</g></svg>'
    )
    return Drawing(svg, "\n".join(lines))


def _lines(rows: int, width: int) -> str:
    return "".join(f"M0 {ROW * row}H{width}" for row in range(1, rows + 1))


def _label(x: float, row: int, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{ROW * row + 6.8:g}"{style}>{escape(text)}</text>'


def _cell(x: float, row: int, sign: str, colour: str) -> str:
    return (
        f'<rect x="{x + 5:g}" y="{ROW * row + 1.2:g}" width="8" height="7.6" rx="1.5" fill="{colour}" '
        f'fill-opacity=".25" stroke="{colour}" stroke-width=".6"/>{_label(x + COLUMN / 2, row, sign)}'
    )

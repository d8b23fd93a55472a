"""The cross-play of a table as SVG: success by whose policy each agent has, every seed beside every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ..drawing import drawing, label, shortened
from .cross_play import Pairing, pairings
from .figure import HEAD
from .pairs import Regime
from .results import TableResults
from .teams import Place

SIDE, GAP, LEFT, ABOVE = 22, 8, 150, 60
"""Of a cell; between regimes; of the labels at the left; of those above."""
STYLE = """<style>
text{font:12px system-ui,sans-serif;fill:#1a1f2b}.faint{fill:#5b6472}.number{font-size:10px;text-anchor:middle}
.heat{fill:#3949ab}.empty{fill:none;stroke:#d5d9e0}
@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.faint{fill:#a3acba}
.heat{fill:#9fa8ff}.empty{stroke:#3a4150}}
</style>"""
WEAKEST, STRONGEST = 0.04, 0.5
"""The opacity of no success and of all: numbers stay readable on both, on light pages and dark ones."""


def heat_map_of(results: TableResults) -> str:
    """A panel per part and variant; "" without a matrix, and where nothing of it was played."""
    table, panels = results.table, dict[tuple[str, str], list[Pairing]]()
    for pairing in pairings(results) if table.cross_play else ():
        panels.setdefault((pairing.part, pairing.variant), []).append(pairing)
    if not panels:
        return ""
    body, y = list[str](), float(HEAD)
    for (part, variant), own in panels.items():
        body.append(label(8, y, ", ".join(word for word in (part, variant, "success in per cent") if word), bold=True))
        shapes, bottom = _panel(own, table.cross_play, results.seeds, y + ABOVE)
        body += shapes
        y = bottom + 36
    width = max(420, LEFT + len(table.cross_play) * (SIDE * len(results.seeds) + GAP) + 16)
    return drawing(f"{table.title}: cross-play by regimes and seeds", width, y - 16, STYLE, body)


def _panel(
    own: Sequence[Pairing], regimes: Mapping[str, Regime], seeds: Sequence[int], top: float
) -> tuple[list[str], float]:
    """The shapes, and where they end."""
    success = {(pairing.first, pairing.second): pairing.outcomes.mean for pairing in own}
    columns = _lines([(name, regime.first) for name, regime in regimes.items()], seeds, LEFT)
    rows = _lines([(name, regime.second) for name, regime in regimes.items()], seeds, top)
    shapes = [label(8, top - 26, "second agent", faint=True), label(LEFT, top - 42, "first agent", faint=True)]
    for (name, place), x in columns.items():
        if place[1] == seeds[0]:
            shapes.append(label(x, top - 26, shortened(name, SIDE * len(seeds))))
        shapes.append(_number(x, top - 20, str(place[1]), "number faint"))
    for (name, place), y in rows.items():
        if place[1] == seeds[0]:
            shapes.append(label(8, y + 15, shortened(name, LEFT - 30)))
        shapes.append(_number(LEFT - SIDE, y, str(place[1]), "number faint"))
    for (row, second), y in rows.items():
        for (column, first), x in columns.items():
            about = f"second agent: {row}, seed {second[1]}; first agent: {column}, seed {first[1]}"
            shapes.append(_cell(x, y, success.get((first, second)), about))
    return shapes, max(rows.values()) + SIDE


def _lines(regimes: Sequence[tuple[str, str]], seeds: Sequence[int], start: float) -> dict[tuple[str, Place], float]:
    """Where the row or column of each regime and run begins."""
    wide = SIDE * len(seeds) + GAP
    return {
        (name, (setting, seed)): start + place * wide + number * SIDE
        for place, (name, setting) in enumerate(regimes)
        for number, seed in enumerate(seeds)
    }


def _cell(x: float, y: float, success: float | None, about: str) -> str:
    """A square, the stronger the more it solved, with its success in per cent; an outline where it was not played."""
    place = f'x="{x + 1:.0f}" y="{y + 1:.0f}" width="{SIDE - 2}" height="{SIDE - 2}" rx="3"'
    if success is None:
        return f'<rect class="empty" {place}><title>{escape(about)}: not played</title></rect>'
    opacity = WEAKEST + (STRONGEST - WEAKEST) * success
    square = f'<rect class="heat" {place} fill-opacity="{opacity:.2f}"/>'
    number = _number(x, y, f"{100 * success:.0f}", "number")
    return f"<g><title>{escape(about)}: {success:.3f}</title>{square}{number}</g>"


def _number(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x + SIDE / 2:.0f}" y="{y + 15:.0f}">{escape(text)}</text>'

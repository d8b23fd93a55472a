"""What the figures of sweeps and tables are drawn with: SVG as text, without a library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape


def drawing(title: str, width: float, height: float, style: str, body: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img"'
    return "\n".join([f'{head} aria-label="{escape(title, quote=True)}">', style, *body, "</svg>\n"])


def label(x: float, y: float, text: str, bold: bool = False, faint: bool = False) -> str:
    look = ' font-weight="600"' if bold else ' class="faint"' if faint else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{look}>{escape(text)}</text>'


def shortened(text: str, width: float) -> str:
    """``text`` cut to about ``width`` pixels of a label."""
    most = max(4, int(width / 6.2))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def nice_ticks(values: Sequence[float]) -> list[float]:
    """From 0, or below, to above the largest value, in steps of 1, 2 or 5 times a power of ten."""
    low, high = min(0.0, *values), max(0.0, *values)
    least = max(high - low, 1e-9) / 5
    power = 10 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    return [step * place for place in range(math.floor(low / step), math.ceil(high / step) + 1)]

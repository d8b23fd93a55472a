"""The learning curves of a sweep as SVG: success on validation tasks over the completions that training generated."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean

from .curve import Curve, common_budgets, value_at
from .drawing import drawing, label, nice_ticks, shortened
from .summary import SweepSummary

WIDTH, HEIGHT, LEFT, RIGHT, HEAD, BELOW = 860, 220, 60, 236, 36, 56
"""Of the drawing; of the area of a panel; of the margins at its left and right, above and below it."""
COLOURS = ("#3949ab", "#b3541e", "#0f766e", "#a2307f", "#5b6472", "#6b6f00")
ON_DARK = ("#9fa8ff", "#f0a070", "#5cc9bd", "#f08fd0", "#a3acba", "#c9cc5c")
"""By setting; those after the sixth have the same ones, dashed."""
STYLE = "\n".join(
    [
        "<style>",
        "text{font:12px system-ui,sans-serif;fill:#1a1f2b}.faint{fill:#5b6472}.grid{stroke:#d5d9e0}",
        "polyline{fill:none;stroke-width:1;stroke-opacity:.45}.mean{stroke-width:2.5;stroke-opacity:1}",
        *(f".c{number}{{stroke:{colour}}}" for number, colour in enumerate(COLOURS)),
        "@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.faint{fill:#a3acba}.grid{stroke:#3a4150}",
        *(f".c{number}{{stroke:{colour}}}" for number, colour in enumerate(ON_DARK)),
        "}</style>",
    ]
)

CAPTION = "completions of training; success on validation tasks, thin lines: single seeds"
Line = Sequence[tuple[float, float]]
"""Completions and success."""


def curves_figure(summary: SweepSummary) -> str:
    """A panel per variant: a thin line per run, a thick one for the mean over the seeds of a setting; "" where no run
    was validated twice.
    """
    curves = curves_of(summary)
    if not curves:
        return ""
    body, y = list[str](), HEAD
    numbers = {setting: number for number, setting in enumerate(dict.fromkeys(row["setting"] for row in summary.rows))}
    for variant, settings in curves.items():
        if variant:
            body.append(label(8, y - 16, variant, bold=True))
        body += _panel(settings, numbers, y)
        y += HEIGHT + BELOW + HEAD
    title = f"Sweep {summary.name}: success on validation tasks over training"
    return drawing(title, WIDTH, y - HEAD, STYLE, body)


def curves_of(summary: SweepSummary) -> dict[str, dict[str, list[Curve]]]:
    """The curves of the finished runs that were validated twice at least, by variant and setting."""
    curves: dict[str, dict[str, list[Curve]]] = {}
    for row in summary.rows:
        if row["status"] == "finished" and len(row["curve"]) > 1:
            curves.setdefault(row["variant"], {}).setdefault(row["setting"], []).append(row["curve"])
    return curves


def mean_line(curves: Sequence[Curve]) -> Line:
    """The mean over seeds wherever one of them was validated, between the budgets that all of them have."""
    first = max(curve[0].completions for curve in curves)
    last = common_budgets(curves)["completions"]
    budgets = sorted({point.completions for curve in curves for point in curve if first <= point.completions <= last})
    return [
        (budget, fmean(value.mean for curve in curves if (value := value_at(curve, "completions", budget))))
        for budget in budgets
    ]


def _polyline(points: Line, number: int, mean: bool = False) -> str:
    """``number`` is the setting's."""
    kind = f"c{number % len(COLOURS)}{' mean' if mean else ''}"
    dash = f' stroke-dasharray="{4 * (number // len(COLOURS))} 3"' if number >= len(COLOURS) else ""
    return f'<polyline class="{kind}"{dash} points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _panel(settings: dict[str, list[Curve]], numbers: dict[str, int], top: float) -> list[str]:
    most = max(curve[-1].completions for curves in settings.values() for curve in curves)
    right, bottom = WIDTH - RIGHT, top + HEIGHT

    def across(completions: float) -> float:
        return LEFT + completions / most * (right - LEFT)

    def placed(line: Line) -> Line:
        return [(across(completions), bottom - success * HEIGHT) for completions, success in line]

    shapes = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - share * HEIGHT
        shapes.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>{label(16, y + 4, f"{share:.0%}", faint=True)}')
    for tick in (tick for tick in nice_ticks([most]) if tick <= most):
        text = f"{tick:,.0f}"
        shapes.append(f'<path class="grid" d="M{across(tick):.1f} {bottom}v5"/>')
        shapes.append(label(across(tick) - 3.5 * len(text), bottom + 20, text, faint=True))
    shapes.append(label(LEFT, bottom + 40, CAPTION, faint=True))
    for place, (setting, curves) in enumerate(settings.items()):
        number = numbers[setting]
        for curve in curves:
            line = [(point.completions, point.outcomes.mean) for point in curve]
            shapes.append(_polyline(placed(line), number))
        shapes.append(_polyline(placed(mean_line(curves)), number, mean=True))
        y = top + 10 + 18 * place
        shapes.append(_polyline([(right + 16, y - 4), (right + 38, y - 4)], number, mean=True))
        about = f"{setting}, {len(curves)} seed{'s' if len(curves) > 1 else ''}"
        shapes.append(f"<g><title>{escape(about)}</title>{label(right + 46, y, shortened(setting, RIGHT - 50))}</g>")
    return shapes

"""Tables of runs as cells, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import number_of
from .measures import MEASURES, METRICS, READINGS
from .outcomes import Budgets
from .rows import NESTED, TableRow

GROUP = ("setting", "variant")
READ = "Read off the learning curves (validation tasks) at the largest budgets that all of these runs reach"


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, every column, numbers in full; an unknown value is empty; "" without rows."""
    if not rows:
        return ""
    out = io.StringIO()
    columns = [name for name in rows[0] if name not in NESTED]
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def share(row: Mapping[str, Any], name: str, bounds: str = "") -> str:
    """:func:`spread` of the columns ``name``, and ``bounds`` with ``_low`` and ``_high``."""
    return spread(row[name], row[f"{bounds or name}_low"], row[f"{bounds or name}_high"])


def spread(value: float | None, low: float | None, high: float | None) -> str:
    """``0.970 (0.936 to 0.986)``, without the interval where there is none, or empty."""
    if value is None:
        return ""
    return f"{value:.3f}" if low is None else f"{value:.3f} ({low:.3f} to {high:.3f})"


def number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


Cells = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The heads and the lines of a table."""


def without_empty(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Cells:
    """Without the columns that are empty throughout."""
    columns = [index for index in range(len(heads)) if any(line[index] for line in lines)]
    return [heads[i] for i in columns], [[line[i] for i in columns] for line in lines]


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table, without the columns that are empty throughout."""
    heads, lines = without_empty(heads, lines)
    table = [heads, ["---"] * len(heads), *lines]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in table)


TEX = str.maketrans(
    {**{sign: f"\\{sign}" for sign in "&%$#_{}"}, "\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
    | {"^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "`": ""}
)


SHOWN_COSTS = {"turns": 2, "completions": 0, "tokens": 0, "env_steps": 0, "wall_s": 1}
"""Those of :data:`.measures.COSTS` that tables show, with their digits."""
COST_HEADS = [name.replace("_", " ") for name in SHOWN_COSTS]


FITTING = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" + "\n"
"""Before what is made narrower where it is wider than a line."""


def latex(cells: Cells, caption: str, label: str, without: Sequence[str] = ()) -> str:
    """A LaTeX table for a paper with ``\\usepackage{booktabs,graphicx}``, no wider than a line, without the columns
    ``without`` and those that are empty throughout; each interval stands behind its mean, small."""
    heads, lines = without_empty(*cells)
    shown = [i for i, head in enumerate(heads) if head not in without]
    heads, lines = [heads[i] for i in shown], [[line[i] for i in shown] for line in lines]
    rows = ["{}" + " & ".join(_tex(cell) for cell in line) + r" \\" for line in (heads, *lines)]
    body = "\n".join([r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"])
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{' '.join(caption.split()).translate(TEX)}}}\n"
        f"\\label{{tab:{label}}}\n{FITTING}"
        f"\\begin{{tabular}}{{{'l' * len(heads)}}}\n{body}\n\\end{{tabular}}}}\n\\end{{table}}\n"
    )


def _tex(cell: str) -> str:
    return re.sub(r"\((\S+) to (\S+)\)", r"{\\small [\1, \2]}", cell.translate(TEX))


def runs_cells(rows: Sequence[TableRow]) -> Cells:
    """One line per run."""
    heads = [*GROUP, "seed", "status", "stale", *METRICS, *COST_HEADS]
    lines = [
        [row["setting"], row["variant"], str(row["seed"]), row["status"], row["stale"]]
        + [share(row, name) for name in METRICS]
        + [*_costs(row), (row["code"] or "")[:8], row["run"] or "", row["note"]]
        for row in rows
    ]
    return without_empty([*heads, "code", "run", "note"], lines)


def settings_cells(rows: Sequence[TableRow]) -> Cells:
    """One line per setting: means over seeds with their intervals over seeds and tasks."""
    heads = [*GROUP, "seeds", "stale", *METRICS]
    lines = [
        [row["setting"], row["variant"], _of(row["n"], row["runs"]), str(row["stale"] or "")]
        + [share(row, f"{name}_mean", name) for name in METRICS]
        + _costs(row)
        for row in rows
    ]
    return without_empty([*heads, *COST_HEADS], lines)


def _costs(row: TableRow) -> list[str]:
    return [number(row[name], digits) for name, digits in SHOWN_COSTS.items()]


def _of(part: int, whole: int) -> str:
    return str(whole) if part == whole else f"{part} of {whole}"


def readings_cells(rows: Sequence[TableRow], threshold: float | None) -> Cells:
    """One line per setting: success at common budgets, and the completions to ``threshold``."""
    heads = [*GROUP, "at equal completions", "at equal tokens", "at equal steps", "area"]
    heads += ["", ""] if threshold is None else [f"completions to {threshold:g}", f"seeds with {threshold:g}"]
    lines = [
        [row["setting"], row["variant"]]
        + [share(row, f"{name}_mean", name) for name in READINGS]
        + [number(row["to_threshold"]), f"{row['reached']} of {row['n']}" if threshold is not None else ""]
        for row in rows
    ]
    return without_empty(heads, lines)


def budgets_line(budgets: Mapping[str, Budgets]) -> str:
    """The common budgets in words, by variant."""
    parts = []
    for variant, own in budgets.items():
        figures = ", ".join(f"{number(value)} {axis}" for axis, value in own.items())
        parts.append(f"{variant}: {figures}" if variant else figures)
    return f"{READ}: {'; '.join(parts)}.\nSteps are optimizer steps per policy; `area` is the mean of the curve.\n"


def verdicts_cells(rows: Sequence[TableRow]) -> Cells:
    """One line per claim, part and variant."""
    lines = [
        [
            *(row["claim"], row["part"], figure_name(row["metric"]), number(row["budget"]), row["variant"]),
            *(row["paper"], row["threshold"], share(row, "difference") + _ratio(row), str(row["n"] or "")),
            *(_p(row["p_above"]), _p(row["p_below"]), row["verdict"], row["why"]),
        ]
        for row in rows
    ]
    heads = ["claim", "part", "figure", "budget", "variant", "the paper's", "threshold", "difference", "seeds"]
    return without_empty([*heads, "p, above", "p, below", "verdict", "why"], lines)


def figure_name(metric: str) -> str:
    """The success or measure ``metric`` in words."""
    return MEASURES.get(metric) or {"before": "success, untrained", "after": "success, trained"}.get(metric, metric)


def _ratio(row: TableRow) -> str:
    """What a difference of natural logarithms is as a ratio; "" of other figures."""
    if not row["metric"].startswith("log_") or row["difference"] is None:
        return ""
    names = ("difference", "difference_low", "difference_high")
    return f"; ratio {spread(*(None if row[name] is None else math.exp(row[name]) for name in names))}"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def codes_line(rows: Sequence[TableRow]) -> str:
    """The commits of the finished runs, and the settings whose runs different code has trained; "" where no row
    says."""
    trained = [row for row in rows if row["status"] == "finished"]
    finished = [row for row in trained if row.get("commit")]
    if not finished:
        return ""
    commits = {row["commit"]: sum(each["commit"] == row["commit"] for each in finished) for row in finished}
    codes: dict[str, set[str]] = {}
    for row in finished:
        codes.setdefault(" ".join(filter(None, (row.get("part"), row["setting"], row["variant"]))), set()).add(
            row["code"]
        )
    mixed = [f"{name} ({', '.join(sorted(map(_short, own)))})" for name, own in codes.items() if len(own) > 1]
    parts = [f"`{commit}` ({number_of(count, 'run')})" for commit, count in commits.items()]
    parts += [f"not known ({number_of(len(trained) - len(finished), 'run')})"] if len(trained) > len(finished) else []
    head = "Commit" if len(parts) == 1 else "Commits"
    text = f"Runs of different code in: {'; '.join(mixed)}." if mixed else "In each setting the code is the same."
    return f"{head} of these runs: {', '.join(parts)}. {text}\n"


def _short(code: str) -> str:
    """Eight digits of each hash: a run that was continued with other code has several."""
    return "+".join(one[:8] for one in code.split("+"))


def uncurved_line(rows: Sequence[TableRow]) -> str:
    """Which finished runs lack the learning curve that others have, so that there is nothing at equal budgets."""
    finished = [row for row in rows if row["status"] == "finished"]
    without = [row for row in finished if not row["curve"]]
    if not without or len(without) == len(finished):
        return ""
    names = "; ".join(f"{row['setting']} {row['variant']}".strip() + f", seed {row['seed']}" for row in without)
    return f"Without a learning curve, so that their variant has no figures at equal budgets: {names}.\n"


def cost_line(rows: Sequence[TableRow]) -> str:
    """The CPU time of the runs; "" where no row has it."""
    seconds = [row["cpu_s"] for row in rows if row.get("cpu_s")]
    runs = number_of(len(seconds), "run")
    return f"CPU time of these runs: {sum(seconds) / 3600:.2f} hours ({runs}).\n" if seconds else ""

"""What the runs of a table have at equal budgets, read off their learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .curve import AXES, Axis, area, common_budgets, completions_to, value_at
from .outcomes import Outcomes
from .rows import TableRow

Budgets = dict[Axis, float]


def with_readings(rows: Sequence[TableRow], threshold: float | None) -> tuple[list[TableRow], dict[str, Budgets]]:
    """The rows with what their curves have at common budgets, and these budgets by variant.

    ``at_AXIS`` is the success on validation tasks at the largest budget of completions, tokens or optimizer steps that
    all finished runs of a variant reach, ``area`` the mean of the curve up to that number of completions, and
    ``to_threshold`` the completions at which success is first ``threshold``.  None of it is there where a finished run
    has no curve.
    """
    budgets, result = {}, []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        curves = [row["curve"] for row in rows if row["variant"] == variant and row["status"] == "finished"]
        budgets[variant] = common_budgets(curves)
    for row in rows:
        readings = _readings(row, budgets[row["variant"]], threshold) if row["status"] == "finished" else {}
        outcomes = {name: value for name, value in readings.items() if isinstance(value, Outcomes)}
        figures = {name: value.mean for name, value in outcomes.items()}
        numbers = {"to_threshold": readings["to_threshold"]} if readings else {}
        result.append(row | figures | numbers | {"outcomes": row["outcomes"] | outcomes})
    return result, {variant: own for variant, own in budgets.items() if own}


def _readings(row: TableRow, budgets: Budgets, threshold: float | None) -> dict[str, Any]:
    if not budgets:
        return {}
    curve = row["curve"]
    values: dict[str, Any] = {f"at_{axis}": value_at(curve, axis, budgets[axis]) for axis in AXES}
    values["area"] = area(curve, "completions", budgets["completions"])
    return values | {"to_threshold": None if threshold is None else completions_to(curve, threshold)}

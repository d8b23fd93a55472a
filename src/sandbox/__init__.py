"""Runs untrusted Python programs that a model has written; knows nothing of the rest of Troupe."""

from .base import (
    NO_VALUE,
    Call,
    Expression,
    Job,
    JsonValue,
    Limits,
    Missing,
    Result,
    Sandbox,
    SandboxUnavailable,
    Verdict,
    jobs_of_calls,
    jobs_of_inputs,
    run_all,
)
from .local import LocalSandbox
from .values import equal_values, parse_value

__all__ = [
    "NO_VALUE",
    "Call",
    "Expression",
    "Job",
    "JsonValue",
    "Limits",
    "LocalSandbox",
    "Missing",
    "Result",
    "Sandbox",
    "SandboxUnavailable",
    "Verdict",
    "equal_values",
    "jobs_of_calls",
    "jobs_of_inputs",
    "parse_value",
    "run_all",
]

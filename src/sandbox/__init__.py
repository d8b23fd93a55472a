"""Runs untrusted Python programs that a model has written; knows nothing of the rest of Troupe."""

from .guest.plain import Opaque, decode, encode
from .jobs import (
    NO_VALUE,
    Call,
    Expression,
    Job,
    JsonValue,
    Limits,
    Missing,
    PlainValue,
    Result,
    Sandbox,
    SandboxUnavailable,
    Verdict,
    jobs_of_calls,
    jobs_of_inputs,
    run_all,
)
from .local import LocalSandbox
from .values import equal_values, parse_value, read_value

__all__ = [
    "NO_VALUE",
    "Call",
    "Expression",
    "Job",
    "JsonValue",
    "Limits",
    "LocalSandbox",
    "Missing",
    "Opaque",
    "PlainValue",
    "Result",
    "Sandbox",
    "SandboxUnavailable",
    "Verdict",
    "decode",
    "encode",
    "equal_values",
    "jobs_of_calls",
    "jobs_of_inputs",
    "parse_value",
    "read_value",
    "run_all",
]

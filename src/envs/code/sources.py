"""Programming problems of published data sets: APPS, CodeContests, LiveCodeBench, HumanEval.

Each function makes the problem of one row, or says why the row has none; :data:`SOURCES` names them with the columns
that they read.  The schemas are those of the dataset cards of codeparrot/apps, deepmind/code_contests,
livecodebench/code_generation_lite and openai/openai_humaneval.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from ..rows import Columns
from .assertions import take_apart
from .problem import Check, Problem, Suite

PYTHON3: Final = 3
"""CodeContests' number of the language."""

IMPORTS: Final = "from typing import *\nimport collections, heapq, itertools, math, re, string\n"
"""What programs with a given signature may take for granted, as their starters do."""

_UNPACKED: Final = 1 << 28
"""Bytes of a row's tests, once unpacked."""


class Unusable(ValueError):
    """A row that is no problem: why."""


class Malformed(ValueError):
    """A cell that is not as the data set's card says: column and what is wrong."""


@dataclass(frozen=True)
class SourceKind:
    """The columns that are read, and what makes a problem of a row (name, row)."""

    columns: Columns
    problem: Callable[[str, Mapping[str, Any]], Problem]


def apps(name: str, row: Mapping[str, Any]) -> Problem:
    """APPS: tests and solutions are JSON in text."""
    if not row["input_output"]:
        raise Unusable("no hidden tests")
    tests = _json_of(row, "input_output", dict)
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise Malformed("column input_output: inputs and outputs are no lists")
    if len(inputs) != len(outputs):
        raise Unusable("more inputs than outputs, or fewer")
    if not inputs:
        raise Unusable("no hidden tests")
    solutions = _json_of(row, "solutions", list) if row["solutions"] else []
    function = tests.get("fn_name")
    if function is not None:
        # Values are mostly wrapped into lists of one.
        wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
        outputs = [output[0] for output in outputs] if wrapped else outputs
        suite = tuple(Check(_dumped(i), _dumped(o)) for i, o in zip(inputs, outputs, strict=True))
        method = "class Solution" in row["starter_code"]
        function = f"Solution.{function}" if method else function
    else:
        suite = tuple(Check(_text(i), _text(o)) for i, o in zip(inputs, outputs, strict=True))
    return Problem(
        name,
        row["question"],
        _once(suite),
        function=function,
        setup=IMPORTS if function else "",
        starter=row["starter_code"],
        reference=next(iter(solutions), None),
    )


def code_contests(name: str, row: Mapping[str, Any]) -> Problem:
    """CodeContests: the public tests are the examples; private and generated ones decide."""
    examples = _pairs(row, "public_tests")
    hidden = _pairs(row, "private_tests") + _pairs(row, "generated_tests")
    if not hidden:
        raise Unusable("no hidden tests")
    solutions = row["solutions"]
    if set(solutions) < {"language", "solution"}:
        raise Malformed("column solutions: no language and solution")
    written = zip(solutions["language"], solutions["solution"], strict=True)
    reference = next((text for language, text in written if language == PYTHON3), None)
    return Problem(name, row["description"], _once(hidden), _once(examples), reference=reference)


def live_code_bench(name: str, row: Mapping[str, Any]) -> Problem:
    """LiveCodeBench: it has no reference solutions; its private tests may be packed."""
    examples = _cases(_json_of(row, "public_test_cases", list), "public_test_cases")
    packed = row["private_test_cases"]
    try:
        private = _loaded(packed)
    except json.JSONDecodeError:
        private = _unpacked(packed)
    if not isinstance(private, list):
        raise Malformed("column private_test_cases: no list")
    hidden = _cases(private, "private_test_cases")
    if not hidden:
        raise Unusable("no hidden tests")
    kinds = {kind for kind, _ in (*examples, *hidden)}
    if len(kinds) > 1:
        raise Unusable("tests of both kinds")
    function = None
    if kinds == {"functional"}:
        function = _json_of(row, "metadata", dict).get("func_name")
        if not isinstance(function, str):
            raise Malformed("column metadata: functional tests without func_name")
        function = f"Solution.{function}" if "class Solution" in row["starter_code"] else function
    return Problem(
        name,
        row["question_content"],
        _once(tuple(check for _, check in hidden)),
        _once(tuple(check for _, check in examples)),
        function=function,
        setup=IMPORTS if function else "",
        starter=row["starter_code"],
    )


def human_eval(name: str, row: Mapping[str, Any]) -> Problem:
    """HumanEval: assertions are taken apart; where none can be, the whole script is the hidden test."""
    prompt, function = row["prompt"], row["entry_point"]
    try:
        apart = take_apart(row["test"], {"candidate": function, function: function})
        setup = _before(prompt, function)
    except SyntaxError as error:
        raise Malformed(f"column test or prompt: no Python: {error}") from error
    return Problem(
        name,
        prompt,
        apart.suite,
        function=function,
        setup=setup,
        starter=prompt,
        script=None if apart.suite else row["test"],
        reference=prompt + row["canonical_solution"],
        tolerance=max(apart.tolerance, 1e-6),
        refused=apart.refused if apart.suite else 0,
    )


SOURCES: Final[Mapping[str, SourceKind]] = {
    "apps": SourceKind(
        {"problem_id": (int, str), "question": str, "solutions": str, "input_output": str, "starter_code": str}, apps
    ),
    "code_contests": SourceKind(
        {
            "name": str,
            "description": str,
            "public_tests": dict,
            "private_tests": dict,
            "generated_tests": dict,
            "solutions": dict,
        },
        code_contests,
    ),
    "live_code_bench": SourceKind(
        {
            "question_id": str,
            "question_content": str,
            "starter_code": str,
            "public_test_cases": str,
            "private_test_cases": str,
            "metadata": str,
        },
        live_code_bench,
    ),
    "human_eval": SourceKind(
        {"task_id": str, "prompt": str, "canonical_solution": str, "test": str, "entry_point": str}, human_eval
    ),
}
"""By the name that configurations use."""


def _json_of(row: Mapping[str, Any], column: str, kind: type) -> Any:
    try:
        value = _loaded(row[column])
    except json.JSONDecodeError as error:
        raise Malformed(f"column {column}: no JSON: {error}") from error
    if not isinstance(value, kind):
        raise Malformed(f"column {column}: expected JSON of a {kind.__name__}, got a {type(value).__name__}")
    return value


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # APPS has a few integers beyond Python's limit
        raise Unusable("integers of more than 4300 digits") from error


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise Unusable("values that JSON does not have") from error


def _text(value: Any) -> str:
    """Standard input or output, which APPS has as text or as lines."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _pairs(row: Mapping[str, Any], column: str) -> Suite:
    tests = row[column]
    if set(tests) < {"input", "output"} or len(tests["input"]) != len(tests["output"]):
        raise Malformed(f"column {column}: no input and output of one length")
    return tuple(Check(given, expected) for given, expected in zip(tests["input"], tests["output"], strict=True))


def _cases(cases: list[Any], column: str) -> list[tuple[str, Check]]:
    """(Kind, test) of LiveCodeBench's cases; arguments stand on lines of their own."""
    found = []
    for case in cases:
        if not isinstance(case, dict) or not {"input", "output", "testtype"} <= case.keys():
            raise Malformed(f"column {column}: a case without input, output and testtype")
        given, expected = case["input"], case["output"]
        if case["testtype"] == "functional":
            try:
                arguments = [_loaded(line) for line in given.splitlines() if line.strip()]
                given, expected = _dumped(arguments), _dumped(_loaded(expected))
            except json.JSONDecodeError as error:
                raise Malformed(f"column {column}: a functional case that is no JSON: {error}") from error
        found.append((case["testtype"], Check(given, expected)))
    return found


class _TextOnly(pickle.Unpickler):
    """Reads text, and refuses whatever would name a class or a function."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is not read")


def _unpacked(packed: str) -> Any:
    """LiveCodeBench's base64 of zlib of a pickled text of JSON.  Nothing but text comes out of it."""
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(base64.b64decode(packed, validate=True), _UNPACKED)
        # What a broken pickle raises, its documentation leaves open; these are seen.
        text = _TextOnly(io.BytesIO(data)).load()
    except (ValueError, LookupError, EOFError, AttributeError, zlib.error, pickle.UnpicklingError) as error:
        raise Malformed(f"column private_test_cases: neither JSON nor packed JSON: {error}") from error
    if inflating.unconsumed_tail or not isinstance(text, str):
        raise Malformed(f"column private_test_cases: no packed text of at most {_UNPACKED} bytes")
    try:
        return _loaded(text)
    except json.JSONDecodeError as error:
        raise Malformed(f"column private_test_cases: neither JSON nor packed JSON: {error}") from error


def _before(prompt: str, function: str) -> str:
    """The code of a prompt before the function to be written: imports and helpers."""
    for node in ast.parse(prompt + "    pass\n").body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return "".join(prompt.splitlines(keepends=True)[: node.lineno - 1])
    raise Malformed(f"column prompt: no function {function}")


def _once(suite: Suite) -> Suite:
    return tuple(dict.fromkeys(suite))

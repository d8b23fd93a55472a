"""Programming problems of published data sets: APPS, CodeContests, LiveCodeBench, HumanEval, CoopHumanEval, MBPP.

Each function makes the problem of one row; :data:`SCHEMAS` names them with the columns that they read.  The schemas are
those of the dataset cards of codeparrot/apps, deepmind/code_contests, livecodebench/code_generation_lite,
openai/openai_humaneval, OpenMLRL/CoopHumanEval and google-research-datasets/mbpp (sanitized).
"""

from __future__ import annotations

import ast
import base64
import json
import pickletools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from ..datasets import CellError, Columns, UnusableRow, paired
from .assertions import parse_assertions
from .problem import Check, Problem, Suite, evaluating_names, parse_python

PYTHON3: Final = 3
"""CodeContests' number of the language."""

IMPORTS: Final = "from typing import *\nimport collections, heapq, itertools, math, re, string\n"
"""Imports that starters with a signature take for granted, and so do programs."""

_UNPACKED_BYTES: Final = 1 << 28
"""Size of a row's unpacked tests, at most."""


@dataclass(frozen=True)
class Schema:
    """The columns of a data set that are read, and the function from (problem's name, row) to its problem."""

    columns: Columns
    problem: Callable[[str, Mapping[str, Any]], Problem]


def apps(name: str, row: Mapping[str, Any]) -> Problem:
    """APPS: tests and solutions are JSON in text."""
    if not row["input_output"]:
        raise UnusableRow("no hidden tests")
    tests = _json_cell(row, "input_output", dict)
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise CellError("input_output", "inputs and outputs are no lists")
    if len(inputs) != len(outputs):
        raise UnusableRow("more inputs than outputs, or fewer")
    if not inputs:
        raise UnusableRow("no hidden tests")
    solutions = _json_cell(row, "solutions", list) if row["solutions"] else []
    if not all(isinstance(solution, str) for solution in solutions):
        raise CellError("solutions", "a solution that is no text")
    function = tests.get("fn_name")
    if not isinstance(function, str | None):
        raise CellError("input_output", f"fn_name is no text: {function!r:.40}")
    if function is not None:
        # Values are mostly wrapped into lists of one.
        in_lists = all(isinstance(output, list) and len(output) == 1 for output in outputs)
        outputs = [output[0] for output in outputs] if in_lists else outputs
        suite = tuple(Check(_to_json(i), _to_json(o)) for i, o in zip(inputs, outputs, strict=True))
        is_method = "class Solution" in row["starter_code"]
        function = f"Solution.{function}" if is_method else function
    else:
        suite = tuple(Check(_text(i), _text(o)) for i, o in zip(inputs, outputs, strict=True))
    return Problem(
        name,
        row["question"],
        _unique(suite),
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
        raise UnusableRow("no hidden tests")
    by_language = _columns(row, "solutions", "language", "solution")
    reference = next((text for language, text in by_language if language == PYTHON3), None)
    if not isinstance(reference, str | None):
        raise CellError("solutions", "a solution that is no text")
    return Problem(name, row["description"], _unique(hidden), _unique(examples), reference=reference)


def live_code_bench(name: str, row: Mapping[str, Any]) -> Problem:
    """LiveCodeBench: it has no reference solutions; its private tests may be packed."""
    examples = _cases(_json_cell(row, "public_test_cases", list), "public_test_cases")
    text = row["private_test_cases"]
    try:
        private = _from_json(text)
    except json.JSONDecodeError:
        private = _unpack(text)
    if not isinstance(private, list):
        raise CellError("private_test_cases", "no list")
    hidden = _cases(private, "private_test_cases")
    if not hidden:
        raise UnusableRow("no hidden tests")
    kinds = {kind for kind, _ in (*examples, *hidden)}
    if len(kinds) > 1:
        raise UnusableRow("tests of both kinds")
    function = None
    if kinds == {"functional"}:
        function = _json_cell(row, "metadata", dict).get("func_name")
        if not isinstance(function, str):
            raise CellError("metadata", "functional tests without func_name")
        function = f"Solution.{function}" if "class Solution" in row["starter_code"] else function
    return Problem(
        name,
        row["question_content"],
        _unique(tuple(check for _, check in hidden)),
        _unique(tuple(check for _, check in examples)),
        function=function,
        setup=IMPORTS if function else "",
        starter=row["starter_code"],
    )


def human_eval(name: str, row: Mapping[str, Any]) -> Problem:
    """HumanEval: assertions become tests; where one cannot, the whole script is the last hidden test."""
    return _of_assertions(name, row, row["prompt"] + row["canonical_solution"])


def coop_human_eval(name: str, row: Mapping[str, Any]) -> Problem:
    """CoopHumanEval, and MBPP in its columns: HumanEval's without solutions, so that no script can be run."""
    return _of_assertions(name, row, None)


def mbpp(name: str, row: Mapping[str, Any]) -> Problem:
    """MBPP, sanitised: the statement becomes the docstring of the function that the tests call."""
    if not all(isinstance(test, str) for test in row["test_list"]):
        raise CellError("test_list", f"expected texts, got {row['test_list']!r:.60}")
    code, tests = row["code"], "\n".join(row["test_list"])
    try:
        definitions = {node.name: node for node in parse_python(code).body if isinstance(node, ast.FunctionDef)}
        tree = parse_python(tests)
    except SyntaxError as error:
        raise CellError("code or test_list", f"no Python: {error}") from error
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    function = next((name for name in names if name in definitions), None)
    if function is None:
        raise UnusableRow("tests of no function of the solution")
    head = f"def {function}({ast.unparse(definitions[function].args)}):"
    statement = row["prompt"].strip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    prompt = f'{head}\n    """{statement}\n    """\n'
    lines = ["import math", *ast.unparse(tree).splitlines()]  # math is all that test_imports ever names
    check = "\n    ".join([f"def check({function}):", *lines])
    return _of_assertions(name, {"prompt": prompt, "entry_point": function, "test": check}, code)


def _of_assertions(name: str, row: Mapping[str, Any], reference: str | None) -> Problem:
    """The problem of a prompt that begins a function, and of assertions about it."""
    prompt, function = row["prompt"], row["entry_point"]
    try:
        parsed = parse_assertions(row["test"], {"candidate": function, function: function})
        setup = _code_before(prompt, function)
    except SyntaxError as error:
        raise CellError("test or prompt", f"no Python: {error}") from error
    has_more = parsed.refused or not parsed.suite
    script = _script(row["test"], setup) if reference is not None and has_more else None
    if not parsed.suite and script is None:
        raise UnusableRow("no test that is a call and its value, nor a script that can be run")
    return Problem(
        name,
        prompt,
        parsed.suite,
        function=function,
        setup=setup,
        starter=prompt,
        script=script,
        reference=reference,
        unusable_tests=parsed.refused if script is None else 0,
    )


def _script(test: str, setup: str) -> str | None:
    """``test`` where it can be run: it may not run answers as code."""
    return test if "def check(" in test and not evaluating_names(f"{setup}\n{test}") else None


SCHEMAS: Final[Mapping[str, Schema]] = {
    "apps": Schema(
        {"problem_id": (int, str), "question": str, "solutions": str, "input_output": str, "starter_code": str}, apps
    ),
    "code_contests": Schema(
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
    "live_code_bench": Schema(
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
    "human_eval": Schema(
        {"task_id": str, "prompt": str, "canonical_solution": str, "test": str, "entry_point": str}, human_eval
    ),
    "coop_human_eval": Schema({"task_id": str, "prompt": str, "test": str, "entry_point": str}, coop_human_eval),
    "mbpp": Schema({"task_id": (int, str), "prompt": str, "code": str, "test_list": list}, mbpp),
}
"""By the name that configurations use."""


def _json_cell(row: Mapping[str, Any], column: str, kind: type) -> Any:
    try:
        value = _from_json(row[column])
    except json.JSONDecodeError as error:
        raise CellError(column, f"no JSON: {error}") from error
    if not isinstance(value, kind):
        raise CellError(column, f"expected JSON of a {kind.__name__}, got a {type(value).__name__}")
    return value


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise json.JSONDecodeError("lists within lists too deep", text, 0) from error
    except ValueError as error:  # APPS has a few integers beyond Python's limit
        raise UnusableRow("integers of more than 4300 digits") from error


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise UnusableRow("values that JSON does not have") from error


def _text(value: Any) -> str:
    """Standard input or output, which APPS has as text or as lines."""
    if not isinstance(value, str | int | float | list):
        raise CellError("input_output", f"expected a text or lines, got {value!r:.40}")
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _columns(row: Mapping[str, Any], column: str, first: str, second: str) -> list[tuple[Any, Any]]:
    if (found := paired(row[column], first, second)) is None:
        raise CellError(column, f"no {first} and {second} of one length")
    return found


def _pairs(row: Mapping[str, Any], column: str) -> Suite:
    tests = _columns(row, column, "input", "output")
    if not all(isinstance(text, str) for test in tests for text in test):
        raise CellError(column, "an input or output that is no text")
    return tuple(Check(text, expected) for text, expected in tests)


def _cases(cases: list[Any], column: str) -> list[tuple[str, Check]]:
    """(Kind, test) of LiveCodeBench's cases; arguments stand on lines of their own."""
    tests = []
    for case in cases:
        if not isinstance(case, dict) or not {"input", "output", "testtype"} <= case.keys():
            raise CellError(column, "a case without input, output and testtype")
        text, expected = case["input"], case["output"]
        if not all(isinstance(part, str) for part in (text, expected, case["testtype"])):
            raise CellError(column, "a case whose input, output or testtype is no text")
        if case["testtype"] == "functional":
            try:
                arguments = [_from_json(line) for line in text.splitlines() if line.strip()]
                text, expected = _to_json(arguments), _to_json(_from_json(expected))
            except json.JSONDecodeError as error:
                raise CellError(column, f"a functional case that is no JSON: {error}") from error
        tests.append((case["testtype"], Check(text, expected)))
    return tests


_PLAIN: Final = frozenset("PROTO FRAME MEMOIZE PUT BINPUT LONG_BINPUT STOP".split())
_TEXTS: Final = frozenset("UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8".split())
_MAX_OPCODES: Final = 8
"""Of a pickled text: it, and what stands around it."""


def _unpack(text: str) -> Any:
    """LiveCodeBench's base64 of zlib of a pickled text of JSON.  Nothing is unpickled: the one text in it is read."""
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(base64.b64decode(text, validate=True), _UNPACKED_BYTES)
        codes = [(code.name, argument) for code, argument, _ in islice(pickletools.genops(data), _MAX_OPCODES + 1)]
    except (ValueError, LookupError, zlib.error) as error:
        raise CellError("private_test_cases", f"neither JSON nor packed JSON: {error}") from error
    texts = [argument for name, argument in codes if name in _TEXTS]
    other = {name for name, _ in codes} - _PLAIN - _TEXTS
    if decompressor.unconsumed_tail or other or len(texts) != 1 or len(codes) > _MAX_OPCODES:
        raise CellError("private_test_cases", f"no packed text of at most {_UNPACKED_BYTES} bytes")
    try:
        return _from_json(str(texts[0]))
    except json.JSONDecodeError as error:
        raise CellError("private_test_cases", f"neither JSON nor packed JSON: {error}") from error


def _code_before(prompt: str, function: str) -> str:
    """The code of a prompt before the function to be written: imports and helpers."""
    for node in parse_python(prompt + "    pass\n").body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return "".join(prompt.splitlines(keepends=True)[: node.lineno - 1])
    raise CellError("prompt", f"no function {function}")


def _unique(suite: Suite) -> Suite:
    return tuple(dict.fromkeys(suite))

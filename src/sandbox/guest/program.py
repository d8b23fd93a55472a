"""Runs one program in a process that has given up its rights, and writes its value as JSON (:mod:`.plain`)."""

from __future__ import annotations

import atexit
import builtins
import json
import linecache
import os
import random
import sys
import threading
import traceback
import types
from typing import Any, Final, NoReturn, TextIO

from .confine import PAYLOAD, STDERR, VALUE
from .plain import decode, encode
from .wire import MEMORY_EXIT

_NAME: Final = "<program>"
_dumps, _write, _exit, _close = json.dumps, os.write, os._exit, os.close


def run_payload() -> NoReturn:
    """Read the job from its descriptor, run it and end the process, with the exit status that Python would have."""
    code = 1
    try:
        with open(PAYLOAD, "rb") as file:
            job = json.loads(file.read())
        if job["entry"] is None:
            _close(VALUE)
        code = _run(job)
    except MemoryError:
        code = MEMORY_EXIT
    except BaseException as error:  # any exception of a program becomes an exit status
        code = _report(error)
    finally:
        _exit(code)


def _run(job: dict[str, Any]) -> int:
    _streams()
    random.seed(job["seed"])
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(job["seed"] % 2**32)
    entry, source = job["entry"], job["source"]
    name = "__main__" if entry is None else "program"
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    sys.argv = [_NAME]
    linecache.cache[_NAME] = (len(source), None, source.splitlines(keepends=True), _NAME)
    code = 0
    try:
        exec(compile(source, _NAME, "exec", dont_inherit=True), module.__dict__)
        if entry is not None:
            _answer(entry, module.__dict__)
        else:
            threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does at its end: wait for threads
    except SystemExit as stop:
        code = _status(stop.code)
    if entry is None:
        atexit._run_exitfuncs()
    _flush()
    return code


def _flush() -> None:
    """Flush stdout, and the original stdout if the program has replaced it."""
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None and not stream.closed:
            stream.flush()


def _streams() -> None:
    """New text streams over the run's own descriptors, not the worker's."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(fd)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(fd: int) -> TextIO:
    errors = "backslashreplace" if fd == STDERR else "surrogateescape"
    buffering = 1 if fd == STDERR else -1
    return open(fd, "w" if fd else "r", buffering=buffering, encoding="utf-8", errors=errors, closefd=False)


def _answer(entry: dict[str, Any], names: dict[str, Any]) -> None:
    """Call the function, or evaluate the expression, and write its value as one JSON document."""
    if "expression" in entry:
        names.update(decode(entry["variables"]))
        value = eval(compile(entry["expression"].strip(), "<expression>", "eval", dont_inherit=True), names)
    else:
        value = _find(names, entry["function"])(*decode(entry["args"]), **decode(entry["kwargs"]))
    data = memoryview(_dumps(encode(value, objects=True), allow_nan=False).encode())
    while data:
        data = data[_write(VALUE, data) :]


def _find(names: dict[str, Any], path: str) -> Any:
    """The function named ``path``; a dotted path is a method: "Solution.solve" is ``Solution().solve``."""
    first, *rest = path.split(".")
    if first not in names:
        raise NameError(f"the program defines no {first!r}")
    found = names[first]
    for attribute in rest:
        found = getattr(found() if isinstance(found, type) else found, attribute)
    return found


def _status(code: object) -> int:
    """The exit status of ``sys.exit(code)``."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> int:
    """Write the traceback, from the program's first frame on, to stderr; returns the exit status."""
    try:
        _flush()
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<"):
            trace = trace.tb_next
        lines = traceback.format_exception(type(error), error, trace)
        _write(STDERR, "".join(lines).encode("utf-8", "backslashreplace"))
    except MemoryError:
        return MEMORY_EXIT
    except BaseException:  # a program may break everything that reports its error
        return 1
    return 1

"""Programs that pretend: none of them may pass, and what they write cannot hurt whoever reads it."""

import pytest

from troupe.sandbox import NO_VALUE, Call, Expression, Job, Limits, LocalSandbox

pytestmark = pytest.mark.sandbox

ENDED = {
    "exit at import": "import os\nos._exit(0)\ndef f(n): pass",
    "exit inside": "import os\ndef f(n): os._exit(0)",
    "posix exit": "import posix\ndef f(n): posix._exit(0)",
    "sys.exit": "import sys\ndef f(n): sys.exit(0)",
    "claims": "print('PASSED', {'verdict': 'ok', 'value': 4242})\ndef f(n): return 'PASSED'",
    "equal to all": "class E(int):\n    __eq__ = lambda self, other: True\n    __hash__ = None\ndef f(n): return E(1)",
    "a frame of its own": "import os\ndef f(n):\n    os.write(3, b'[4242]')\n    os._exit(0)",
    "written twice": "import os\ndef f(n):\n    os.write(3, b'4242')\n    return 4242",
    "two lines": "import os\ndef f(n):\n    os.write(3, b'4242\\n4242')\n    os._exit(0)",
    "a float": "def f(n): return 4242.0",
    "a text": "def f(n): return '4242'",
    "a list": "def f(n): return [4242]",
    "NaN": "import os\ndef f(n):\n    os.write(3, b'NaN')\n    os._exit(0)",
    "infinity by size": "import os\ndef f(n):\n    os.write(3, b'1e999')\n    os._exit(0)",
    "deep JSON": "import os\ndef f(n):\n    os.write(3, b'[' * 30_000 + b']' * 30_000)\n    os._exit(0)",
    "moderately deep JSON": "import os\ndef f(n):\n    os.write(3, b'[' * 500 + b']' * 500)\n    os._exit(0)",
    "an integer of 60,000 digits": "import os\ndef f(n):\n    os.write(3, b'9' * 60_000)\n    os._exit(0)",
    "a pickle": "import os, pickle\ndef f(n):\n    os.write(3, pickle.dumps(4242))\n    os._exit(0)",
    "a lone surrogate": "import os\ndef f(n):\n    os.write(3, b'\"\\\\ud800\"')\n    os._exit(0)",
    "bytes that are no text": "import os\ndef f(n):\n    os.write(3, b'\\xff')\n    os._exit(0)",
    "patched json": "import json\njson.dumps = lambda *a, **k: '4242 4242'\ndef f(n): return 1",
    "patched builtins": "import builtins\nbuiltins.len = builtins.all = lambda *a: 4242\ndef f(n): return 1",
    "atexit": "import atexit, os\natexit.register(os.write, 3, b'4242')\ndef f(n): return 1",
    "a finaliser": "import os\nclass A:\n    def __del__(self): os.write(3, b'4242')\nx = A()\ndef f(n): return 1",
    "a thread that adds": (
        "import os, threading, time\ndef g():\n    time.sleep(0.01)\n    os.write(3, b'4242')\n"
        "def f(n):\n    threading.Thread(target=g).start()\n    return 1"
    ),
    "tracing": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\ndef f(n): return 1",
    "own interpreter patched": (
        "import sys\nfor name in list(sys.modules):\n    if name.startswith('guest'):\n"
        "        for key in list(vars(sys.modules[name])): setattr(sys.modules[name], key, print)\ndef f(n): return 1"
    ),
}

CRASH = {
    "patched json that gives no text": "import json\njson.encoder.encode_basestring_ascii = None\ndef f(n): return {1}",
    "exit code of its own": "import os\ndef f(n): os._exit(121)",
    "the exit code of a setup": "import os\nos._exit(1)",
}

HUNT = """
import gc, sys
found = []
def look(value):
    if isinstance(value, (int, str, bytes)) and '4242' in str(value):
        found.append(value)
def f(n):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            look(value)
        frame = frame.f_back
    for thing in gc.get_objects():
        if isinstance(thing, dict):
            for value in list(thing.values()): look(value)
        elif isinstance(thing, (list, tuple)):
            for value in list(thing): look(value)
    return [len([x for x in found if x == int('42' * 2)]), sys.argv, list(sys.orig_argv)]
"""

POISON = """
import sys, json, builtins, random, linecache, os, threading
builtins.leftover = sys.leftover = 'leftover'
sys.modules['math'] = sys.modules['json'] = None
builtins.print = None
random.seed = None
sys.path.insert(0, '/tmp')
sys.setrecursionlimit(99)
linecache.cache['leftover'] = 1
os.environ['LEFTOVER'] = '1'
"""


@pytest.mark.parametrize("name", ENDED)
async def test_it_ends_and_does_not_pass(attack, name: str) -> None:
    await attack(ENDED[name], "ok", *(["crash"] if "patched" in name else []))


@pytest.mark.parametrize("name", CRASH)
async def test_it_crashes(attack, name: str) -> None:
    await attack(CRASH[name], "crash")


async def test_the_memory_exit_code_gains_nothing(attack) -> None:
    await attack("import os\nos._exit(86)", "memory")


async def test_no_expected_answer_in_reach(sandbox: LocalSandbox) -> None:
    """Everything a program can walk to; the constant in its own source is the only 4242."""
    expected_is_somewhere_here = 4242
    result = await sandbox.run(Job(HUNT, entry=Call("f", [2])), Limits(cpu_s=5))
    assert result.verdict == "ok", result.errors
    assert result.value[0] == 0
    assert str(expected_is_somewhere_here) not in str(result.value[1:])


async def test_nothing_is_left_for_the_next_run(sandbox: LocalSandbox) -> None:
    assert (await sandbox.run(Job(POISON))).verdict == "ok"
    clean = (
        "import sys, math, json, random, linecache, builtins, os\nrandom.seed(1)\n"
        "print([hasattr(builtins, 'leftover'), hasattr(sys, 'leftover'), sys.getrecursionlimit(), '/tmp' in sys.path, "
        "'leftover' in linecache.cache, len(os.environ)])"
    )
    result = await sandbox.run(Job(clean))
    assert result.text == "[False, False, 1000, False, False, 0]\n", result.errors


async def test_no_memory_of_the_run_before(sandbox: LocalSandbox) -> None:
    """All memory that a run can read, searched for what the run before was given."""
    secret = "tr0upe-" + "needle"
    await sandbox.run(Job(f"x = '{secret}' * 1000\nprint(len(x))", stdin=secret * 1000))
    search = """
import ctypes, gc
def f(half):
    needle = (half + 'needle').encode()
    return sum(needle in bytes(x) for x in gc.get_objects() if isinstance(x, (bytes, bytearray))) + sum(
        needle.decode() in x for x in map(str, gc.get_objects()) if 'needle' in x and 'half' not in x)
"""
    result = await sandbox.run(Job(search, entry=Call("f", ["tr0upe-"])))
    assert result.value == 0, result


@pytest.mark.parametrize(
    ("source", "entry", "value"),
    [
        ("def f(n): return n * 2121", Call("f", [2]), 4242),
        ("def f(a, *, b): return [a, b]", Call("f", [{"x": None}], {"b": 1.5}), [{"x": None}, 1.5]),
        ("class Solution:\n    def f(self, n): return n", Call("Solution.f", ["é\ud800"[:1]]), "é"),
        ("", Expression(" (x + y) ** 2 ", {"x": 1, "y": 2}), 9),
        ("from math import *", Expression("sqrt(x)", {"x": 2.25}), 1.5),
        ("def f(): print('aside')\nif __name__ == '__main__': f = None", Call("f"), None),
    ],
)
async def test_values_come_back(sandbox: LocalSandbox, source: str, entry: Call | Expression, value: object) -> None:
    result = await sandbox.run(Job(source, entry=entry))
    assert (result.verdict, result.value) == ("ok", value), result.errors


async def test_a_program_reads_and_prints(sandbox: LocalSandbox) -> None:
    source = "if __name__ == '__main__':\n    n = int(input())\n    print(n * 2121)\n    exit()"
    result = await sandbox.run(Job(source, stdin="2\n"))
    assert (result.verdict, result.text, result.value) == ("ok", "4242\n", NO_VALUE)


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nprint(42)\nsys.stdout.close()",
        "import sys, io\nprint(42)\nsys.stdout = io.StringIO()\nprint(43)",
        "import sys\nprint(42)\nsys.stdout = None",
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as s: print(43)\nprint(42)",
        "import os\nos.write(1, b'42\\n')\nos.close(1)",
        "import threading\nthreading.Timer(0.01, print, (42,)).start()",
        "import atexit\natexit.register(print, 42)\nquit()",
        "import sys\nfor line in sys.stdin: print(int(line) * 21)",
        "print(int(open(0).read()) * 21)",
    ],
)
async def test_output_is_complete_as_in_python_itself(sandbox: LocalSandbox, source: str) -> None:
    result = await sandbox.run(Job(source, stdin="2\n"))
    assert (result.verdict, result.text) == ("ok", "42\n"), result.errors


async def test_a_traceback_shows_the_program_only(sandbox: LocalSandbox) -> None:
    result = await sandbox.run(Job("def g():\n    return 1 / 0\ng()"))
    assert result.errors.startswith('Traceback (most recent call last):\n  File "<program>", line 3, in <module>\n')
    assert "return 1 / 0" in result.errors
    assert "guest" not in result.errors

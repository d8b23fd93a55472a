"""Do the default tests find forty planted faults?  ``python bench/planted_faults.py [--only NAME ...]``

``planted_faults.toml`` lists them: one changed line each, a plausible error of meaning and no crash, with the tests
that should find it.  Source, configurations and tests are copied into a temporary folder, from which every process
imports ``troupe``, and each fault is planted there alone.  So nothing is left behind where this program is killed.

First the tests must pass without a fault.  A fault is found where a test fails; tests that cannot even be collected
have found nothing.  The exit status is 1 where a fault is not found, 2 where the list does not fit the code.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("src", "configs", "tests", "pyproject.toml")


class Fault(NamedTuple):
    """``old`` and ``new`` are the line without its indentation; ``tests`` and ``file`` are paths from the root."""

    name: str
    room: str
    file: str
    old: str
    new: str
    means: str
    tests: list[str]


def main() -> None:
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    faults = [Fault(name, **fault) for name, fault in listed.items()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(listed), metavar="NAME")
    only = parser.parse_args().only
    faults = [fault for fault in faults if only is None or fault.name in only]
    with tempfile.TemporaryDirectory(prefix="planted_") as folder:
        tree = Path(folder)
        tree.chmod(0o755)  # sandboxed programs run as another user
        env = copy_into(tree)
        for fault in faults:
            with planted(tree, fault):  # so that a list that does not fit is refused at once
                pass
        if failed := failing(tree, sorted({file for fault in faults for file in fault.tests}), env):
            refuse(f"without a fault the tests do not pass: {failed}")
        missed = 0
        for fault in faults:
            start = time.perf_counter()
            with planted(tree, fault):
                test = failing(tree, fault.tests, env)
            missed += not test
            place, seconds = f"{fault.room:<10} {fault.name:<28}", time.perf_counter() - start
            print(f"{place} {seconds:5.1f} s  {test or f'NOT FOUND: {fault.means}'}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults found")
    sys.exit(missed > 0)


def copy_into(tree: Path) -> dict[str, str]:
    """Copy what tests need into ``tree``; returns the environment in which ``troupe`` is the copy."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree)
    # As in a wheel; found before an editable installation, whose finder comes after the path's.
    (tree / "path").mkdir()
    (tree / "path" / "troupe").symlink_to(tree / "src")
    (tree / "src" / "configs").symlink_to(tree / "configs")
    env = {**os.environ, "PYTHONPATH": str(tree / "path"), "OMP_NUM_THREADS": "1"}
    code = "import troupe.experience as a, troupe.configs as b; print(a.__file__, *b.__path__, sep='\\n')"
    for place in subprocess.check_output([sys.executable, "-c", code], cwd=tree, env=env, text=True).splitlines():
        if not Path(place).resolve().is_relative_to(tree.resolve()):
            refuse(f"the tests would import {place}, not the copy in {tree}")
    return env


@contextmanager
def planted(tree: Path, fault: Fault) -> Iterator[None]:
    """The copy with the fault, and without it afterwards."""
    file = tree / fault.file
    before = file.read_text(encoding="utf-8")
    pattern = re.compile(rf"^([ ]*){re.escape(fault.old)}$", re.MULTILINE)
    after, count = pattern.subn(lambda match: match[1] + fault.new, before)
    if count != 1 or fault.old == fault.new:
        refuse(f"{fault.name}: {fault.file} has the line {count} times, not once: {fault.old}")
    file.write_text(after, encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(before, encoding="utf-8")


def failing(tree: Path, tests: Sequence[str], env: dict[str, str]) -> str:
    """The first test that fails; "" where all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", *tests]
    run = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    if run.returncode not in (0, 1):  # not collected, say: then nothing was tested
        refuse(f"pytest ended with {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    match = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
    return match[1] if match else "a test" * run.returncode


def refuse(reason: str) -> NoReturn:
    print(reason, file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()

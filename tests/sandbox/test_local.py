"""The pool: workers that die, event loops, clean-up, determinism, and machines that lack a layer."""

import asyncio
import copy
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from troupe.sandbox import (
    Call,
    Expression,
    Job,
    Limits,
    LocalSandbox,
    Sandbox,
    SandboxUnavailable,
    jobs_of_calls,
    jobs_of_inputs,
    run_all,
)

from ..processes import below, until

BUSY = Job("while True: pass")
FINE = Job("print(1)")
OF_OTHERS = ("sem.mp-", "sem.loky-", "joblib_memmapping_folder_", "troupe-vllm-")
"""Shared memory of whatever else runs on this machine: multiprocessing, sweeps of other tests, an engine."""


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process, descriptor, temporary file or named memory remains."""
    # A folder of its own: tests that run at the same time write to the common one.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = below(os.getpid()), len(os.listdir("/proc/self/fd")), set(os.listdir("/dev/shm"))
    yield
    assert not below(os.getpid()) - before[0]
    assert len(os.listdir("/proc/self/fd")) <= before[1]
    assert not os.listdir(tmp_path)
    assert not {name for name in os.listdir("/dev/shm") if name not in before[2] and not name.startswith(OF_OTHERS)}


async def test_it_is_a_sandbox_that_copies_share() -> None:
    sandbox = LocalSandbox()
    assert isinstance(sandbox, Sandbox)
    assert copy.deepcopy({"world": [sandbox]})["world"][0] is sandbox
    assert copy.copy(sandbox) is sandbox
    with pytest.raises(RuntimeError, match="start"):
        sandbox.describe()
    await sandbox.close()
    with pytest.raises(RuntimeError, match="closed"):
        await sandbox.run(FINE)


async def test_many_runs_at_a_time_leave_nothing(nothing_left: None) -> None:
    async with LocalSandbox(2) as sandbox:
        assert sandbox.describe()["unsafe"] is False
        inputs = await run_all(sandbox, jobs_of_inputs("print(int(input()) ** 2)", map(str, range(150))))
        calls = await run_all(sandbox, jobs_of_calls("def f(n): return n ** 2", (Call("f", [n]) for n in range(150))))
        assert [int(result.text) for result in inputs] == [n**2 for n in range(150)]
        assert [result.value for result in calls] == [n**2 for n in range(150)]
        assert (sandbox.verdicts, sandbox.restarts) == ({"ok": 300}, 0)


async def test_a_dead_worker_is_replaced_and_the_run_repeated(nothing_left: None) -> None:
    async with LocalSandbox(1) as sandbox:
        [worker] = sandbox._idle
        run = asyncio.create_task(sandbox.run(Job("import time\ntime.sleep(1)\nprint(1)")))
        await until(lambda: worker in sandbox._busy)
        os.kill(worker.pid, signal.SIGKILL)
        assert (await run).text == "1\n"
        assert sandbox.restarts == 1


async def test_a_program_that_fails_is_run_once() -> None:
    async with LocalSandbox(1) as sandbox:
        [worker] = sandbox._idle
        runs = worker._run
        assert (await sandbox.run(Job("1 / 0"))).verdict == "crash"
        assert worker._run == runs + 1


async def test_a_worker_that_always_dies_is_infra(nothing_left: None) -> None:
    async with LocalSandbox(1) as sandbox:

        async def kill() -> None:
            while True:
                for worker in sandbox._busy:
                    if worker._run > 5:  # after its self-test
                        os.kill(worker.pid, signal.SIGKILL)
                await asyncio.sleep(0.05)

        killer = asyncio.create_task(kill())
        result = await sandbox.run(Job("import time\ntime.sleep(1000)"), Limits(idle_s=500))
        killer.cancel()
        assert (result.verdict, sandbox.restarts) == ("infra", 3)
        assert "worker" in result.detail
        assert (await sandbox.run(FINE)).verdict == "ok"


async def test_a_cancelled_run_ends_its_worker_and_nothing_else(nothing_left: None) -> None:
    async with LocalSandbox(2) as sandbox:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sandbox.run(BUSY), 0.2)
        assert (await sandbox.run(FINE)).verdict == "ok"


def test_event_loops_one_after_the_other(nothing_left: None) -> None:
    sandbox = LocalSandbox(1)

    async def several() -> list[str]:
        return [result.text for result in await run_all(sandbox, [FINE] * 4)]

    assert asyncio.run(several()) == asyncio.run(several()) == ["1\n"] * 4
    asyncio.run(sandbox.close())


async def test_the_same_program_ends_the_same_way_in_any_worker() -> None:
    source = (
        "import random\nfrom math import *\nclass A: pass\n"
        "print(random.random(), hash('x'), list({'a', 'b', 'c', 'd'}), [random.gauss(0, 1) for _ in range(3)])"
    )
    texts = set()
    for _ in range(2):
        async with LocalSandbox(2) as sandbox:
            results = await run_all(sandbox, [Job(source)] * 6)
            texts |= {result.stdout for result in results}
            other = await sandbox.run(Job(source, seed=1))
    assert len(texts) == 1
    assert other.stdout not in texts


async def test_installed_packages_by_name_only() -> None:
    programs = ["import numpy\nprint(numpy.random.rand())", "import scipy"]
    async with LocalSandbox(1, imports=["numpy"]) as sandbox:
        first, second, other = await run_all(sandbox, [Job(programs[0]), Job(programs[0]), Job(programs[1])])
        late = await sandbox.run(Job("import numpy.polynomial.legendre as p\nprint(p.legval(1, [1, 2]))"))
    assert (first.verdict, first.stdout) == ("ok", second.stdout)
    assert "ModuleNotFoundError" in other.errors
    assert late.text == "3.0\n", late.errors


async def test_bubblewrap_is_taken_from_the_path_and_left_if_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's environment has no path."""
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho it has no rights >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="it has no rights"):
        await LocalSandbox(1, isolation="bubblewrap").start()
    program.write_bytes(b"of another machine")
    with pytest.raises(SandboxUnavailable, match="bubblewrap sandbox: its worker cannot be started"):
        await LocalSandbox(1, isolation="bubblewrap").start()
    async with LocalSandbox(1) as sandbox:
        assert sandbox.describe()["isolation"] == "landlock"


async def test_an_import_that_fails_is_named() -> None:
    with pytest.raises(SandboxUnavailable, match="no_such_package"):
        await LocalSandbox(1, imports=["no_such_package"]).start()


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"isolation": "none"}])
def test_wrong_settings_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"sandbox {next(iter(wrong))}"):
        LocalSandbox(**wrong)


def test_limits_are_positive() -> None:
    with pytest.raises(ValueError, match="cpu_s must be above 0"):
        Limits(cpu_s=0)


async def test_arguments_that_are_no_plain_values_are_the_callers_error() -> None:
    async with LocalSandbox(1) as sandbox:
        with pytest.raises(TypeError):
            await sandbox.run(Job(entry=Expression("x", {"x": object()})))
        assert (await sandbox.run(FINE)).verdict == "ok"


SCRIPT = """
import asyncio, logging, sys
import pyseccomp as s
logging.basicConfig(level="WARNING", stream=sys.stdout, format="%(message)s")
filter = s.SyscallFilter(s.ALLOW)
for name in {missing!r}:
    filter.add_rule(s.ERRNO(1 if name == "unshare" else 38), name)
if "unshare" in {missing!r}:
    filter.add_rule(s.ERRNO(1), "clone", s.Arg(0, s.MASKED_EQ, 0x10000000, 0x10000000))
filter.load()
from troupe.sandbox import Job, LocalSandbox, SandboxUnavailable
async def main():
    try:
        async with LocalSandbox(1, **{settings!r}) as sandbox:
            print((await sandbox.run(Job("print(6 * 7)"))).text, sandbox.describe())
    except SandboxUnavailable as error:
        print("SandboxUnavailable", error)
asyncio.run(main())
"""


def on_a_kernel_without(missing: list[str], **settings: object) -> str:
    """What a sandbox says where the kernel refuses some system calls."""
    code = SCRIPT.format(missing=missing, settings=settings)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_without_landlock_nothing_runs() -> None:
    said = on_a_kernel_without(["landlock_create_ruleset"])
    assert said.startswith("SandboxUnavailable the kernel has no Landlock")
    assert "42" not in said


def test_without_landlock_unsafe_execution_must_be_asked_for_and_is_told() -> None:
    said = on_a_kernel_without(["landlock_create_ruleset"], allow_unsafe_execution=True)
    assert "UNSAFE" in said
    assert "42\n" in said
    assert re.search(r"'unsafe': True, 'layers': \['seccomp'(, 'cgroup')?\]", said)


def test_without_namespaces_landlock_and_seccomp_remain() -> None:
    said = on_a_kernel_without(["unshare", "clone3"])
    assert "42\n" in said
    assert "'isolation': 'landlock', 'unsafe': False" in said


def test_without_seccomp_the_worker_refuses_to_run_programs() -> None:
    """The kernel takes the filter of the pool, but not that of the run: no program is started, nothing passes."""
    said = on_a_kernel_without(["landlock_restrict_self"])
    assert said.startswith("SandboxUnavailable")
    assert "42\n" not in said


def test_with_allowed_unsafe_execution_a_safe_machine_stays_safe() -> None:
    async def describe() -> dict[str, object]:
        async with LocalSandbox(1, allow_unsafe_execution=True) as sandbox:
            return sandbox.describe()

    assert asyncio.run(describe())["unsafe"] is False


def test_as_an_ordinary_user() -> None:
    """As root: again as nobody, with an interpreter that nobody can reach."""
    python = Path("/usr/bin/python3")
    if os.geteuid() != 0:
        pytest.skip("all other tests are run by an ordinary user already")
    if (
        not python.exists()
        or subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).returncode
    ):
        pytest.skip("no system interpreter of version 3.11 or newer that nobody can reach")
    root, packages = Path(__file__).parents[2], Path(sys.prefix) / "lib"
    site = next(packages.glob("python*/site-packages"))
    code = (
        "import asyncio, importlib.util as u, sys\n"
        f"spec = u.spec_from_file_location('sandbox', {str(root / 'src/sandbox/__init__.py')!r})\n"
        "sys.modules['sandbox'] = module = u.module_from_spec(spec)\nspec.loader.exec_module(module)\n"
        "async def main(isolation):\n"
        "    async with module.LocalSandbox(1, isolation=isolation) as sandbox:\n"
        "        print((await sandbox.run(module.Job('print(6 * 7)'))).text, sandbox.describe())\n"
        "asyncio.run(main('auto'))\nasyncio.run(main('landlock'))\n"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        Path(folder, "pyseccomp.py").write_text((site / "pyseccomp.py").read_text())
        environment = {"PYTHONPATH": folder, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/", "env": environment}
        done = subprocess.run([python, "-c", code], **nobody, capture_output=True, text=True)
    assert done.stdout.count("42\n") == 2, done.stderr
    assert "'isolation': 'landlock', 'unsafe': False" in done.stdout

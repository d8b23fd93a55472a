"""The sandbox: runs a second, latency, hostile load, and what is left behind after many runs.

python bench/sandbox.py                          # speed, on one core
python bench/sandbox.py --leftovers 10000        # what 10,000 runs leave behind, and the trainer's memory
python bench/sandbox.py --repeat 20              # do verdicts ever differ between runs of the same program?
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections import Counter
from pathlib import Path

from troupe.sandbox import Call, Expression, Job, Limits, LocalSandbox, Result, SandboxUnavailable, run_all

JOBS = {
    "stdin program": Job("print(int(input()) * 2)", stdin="21"),
    "function call": Job("def f(n):\n    return [n, {'x': n}]", entry=Call("f", [3])),
    "expression": Job("from math import *", entry=Expression("sqrt(x) + 1", {"x": 9})),
}
HOSTILE = {
    "fork": "import os\nos.fork()",
    "memory": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "busy": "while True: pass",
    "sleep": "import time\ntime.sleep(9)",
    "flood": "while True: print('x' * 1000)",
    "crash": "import ctypes\nctypes.string_at(0)",
    "socket": "import socket\nsocket.socket()",
    "threads": "import threading, time\nfor _ in range(999): threading.Thread(target=time.sleep, args=(9,)).start()",
    "recursion": "def g(): g()\ng()",
    "fine": "print(1)",
}
LIMITS = Limits(cpu_s=0.1, idle_s=0.1, memory_mib=64)


async def speed(isolation: str, count: int) -> None:
    """One worker, one run after the other; client and worker share the cores that this process may use."""
    async with LocalSandbox(1, isolation=isolation) as sandbox:
        for name, job in JOBS.items():
            await run_all(sandbox, [job] * 20)
            times, begin = [], time.perf_counter()
            for _ in range(count):
                start = time.perf_counter()
                result = await sandbox.run(job)
                assert result.verdict == "ok", result
                times.append(time.perf_counter() - start)
            rate, cuts = count / (time.perf_counter() - begin), statistics.quantiles(times, n=20)
            p10, median, p95 = (1e3 * value for value in (cuts[1], statistics.median(times), cuts[-1]))
            print(f"{isolation:11} {name:14} {rate:6.0f} runs/s   median {median:.1f} ms, p10 {p10:.1f}, p95 {p95:.1f}")


def traces() -> dict[str, object]:
    """What runs could leave behind, outside and in this process."""
    status = Path("/proc/self/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0]) // 1024
    return {
        "processes": sum(name.isdigit() and started_here(int(name)) for name in os.listdir("/proc")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "shared memory": sorted(os.listdir("/dev/shm")),
        "troupe files in /tmp": sorted(name for name in os.listdir("/tmp") if name.startswith("troupe-")),
        "System V objects": [
            len(Path(f"/proc/sysvipc/{kind}").read_text().split("\n")) for kind in ("shm", "msg", "sem")
        ],
        "memory of the trainer, MiB": resident,
    }


def started_here(pid: int) -> bool:
    """Whether ``pid`` descends from this process."""
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return False
        if pid == os.getpid():
            return True
    return False


async def leftovers(isolation: str, count: int) -> None:
    """Well-behaved and hostile runs mixed; the traces before, between and after."""
    print("before ", traces())
    jobs = [*JOBS.values()] * 6 + [Job(source) for name, source in HOSTILE.items() if name not in ("busy", "sleep")]
    jobs += [Job(HOSTILE["busy"])]
    async with LocalSandbox(2, isolation=isolation) as sandbox:
        done, seen = 0, Counter[str]()
        begin = time.perf_counter()
        while done < count:
            results = await run_all(sandbox, jobs[: count - done], LIMITS)
            seen.update(result.verdict.value for result in results)
            if done == 0 or done // (count // 4) != (done + len(jobs)) // (count // 4):
                print(f"{done:6} ", traces())
            done += len(results)
        print(f"{done} runs in {time.perf_counter() - begin:.0f} s: {dict(seen)}, {sandbox.restarts} restarts")
    print("after  ", traces())


async def repeat(isolation: str, count: int) -> None:
    """Every program ``count`` times, on two workers; the verdicts that it got."""
    async with LocalSandbox(2, isolation=isolation) as sandbox:
        for name, source in HOSTILE.items():
            results: list[Result] = await run_all(sandbox, [Job(source)] * count, LIMITS)
            verdicts = Counter(result.verdict.value for result in results)
            print(f"{name:10} {dict(verdicts)}{'   DIFFER' if len(verdicts) > 1 else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isolation", default="landlock,bubblewrap")
    parser.add_argument("--count", type=int, default=1000, help="runs a row")
    parser.add_argument("--leftovers", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=0)
    args = parser.parse_args()
    for isolation in args.isolation.split(","):
        if args.leftovers:
            asyncio.run(leftovers(isolation, args.leftovers))
        elif args.repeat:
            asyncio.run(repeat(isolation, args.repeat))
        else:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            try:
                asyncio.run(speed(isolation, args.count))
            except SandboxUnavailable as error:
                print(f"{isolation:11} {error}")


if __name__ == "__main__":
    main()

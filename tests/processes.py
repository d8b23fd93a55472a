"""What the kernel tells of processes that a test has started, and waiting for a condition."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path


def below(root: int) -> set[int]:
    """All descendants of a process."""
    parents = {int(name): int(fields[1]) for name in os.listdir("/proc") if name.isdigit() and (fields := _stat(name))}
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def alive(pid: int) -> bool:
    """Whether a process is there, and not just waits for its end to be noted by whoever inherited it."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def command(pid: int) -> str:
    """The words of its command line, apart by null bytes; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def fork_server(pid: int) -> bool:
    """Whether it is a worker of the sandbox, or a program that has not begun, and not bubblewrap around one."""
    words = command(pid).split("\0")
    return "guest.zygote" in command(pid) and os.path.basename(words[0]) != "bwrap"


def asleep(pid: int) -> bool:
    """Whether a process waits, for input or for a signal."""
    return _stat(pid)[:1] == ["S"]


async def until(condition: Callable[[], object]) -> None:
    """Wait for ``condition``; fails where it does not hold within a minute."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


def _stat(pid: int | str) -> list[str]:
    """Its state, its parent, and what else follows the name in /proc/PID/stat; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []

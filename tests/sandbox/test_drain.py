"""Reading what a program writes, whichever way it writes."""

import asyncio
import fcntl
import os
import time

import pytest

from troupe.sandbox.drain import Drain


async def write(drain: Drain, pieces: int, size: int) -> float:
    """``pieces`` packets of ``size`` bytes, which no two reads of a pipe join; returns the seconds until the last."""

    def work(end: int) -> None:
        for _ in range(pieces):
            os.write(end, b"x" * size)
        os.close(end)

    start, end = time.monotonic(), os.dup(drain.write_end)
    drain.close_write_end()
    fcntl.fcntl(end, fcntl.F_SETFL, os.O_DIRECT)
    await asyncio.gather(asyncio.to_thread(work, end), drain.ended)
    return time.monotonic() - start


async def test_a_byte_at_a_time_does_not_keep_the_loop_busy() -> None:
    """100 reads after the first 64, with 5 ms before each."""
    drain = Drain(1000, 1000, lambda: None)
    seconds = await write(drain, 164, 1)
    drain.close()
    assert drain.data == b"x" * 164 and seconds > 0.4


@pytest.mark.parametrize(("size", "calls"), [(1000, 0), (1001, 1)])
async def test_it_overflows_above_the_limit(size: int, calls: int) -> None:
    overflows: list[None] = []
    drain = Drain(500, 1000, lambda: overflows.append(None))
    await write(drain, 1, size)
    drain.close()
    assert (drain.overflowed, len(overflows)) == (calls > 0, calls)
    assert drain.truncated and drain.data == b"x" * 500

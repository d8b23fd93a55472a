"""Work that is awaited to its end."""

import asyncio

import pytest

from troupe.runs.interrupts import uninterrupted


async def test_a_cancellation_waits_for_the_end() -> None:
    begun, go_on, steps = asyncio.Event(), asyncio.Event(), []

    async def work() -> None:
        begun.set()
        await go_on.wait()
        steps.append("work")

    async def main() -> None:
        await uninterrupted(work())
        steps.append("after")

    task = asyncio.create_task(main())
    await begun.wait()
    for _ in range(2):  # however often
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["work"]


async def test_results_and_errors_pass_through() -> None:
    async def result() -> int:
        return 3

    async def error() -> None:
        raise ValueError("why")

    assert await uninterrupted(result()) == 3
    with pytest.raises(ValueError, match="why"):
        await uninterrupted(error())


async def test_an_error_counts_more_than_a_cancellation() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()
        raise ValueError("why")

    task = asyncio.create_task(uninterrupted(work()))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(ValueError, match="why"):
        await task

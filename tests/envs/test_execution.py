"""Programs of agents: each is run once, and a failed sandbox is no result."""

import asyncio
from collections.abc import Mapping

import pytest

from troupe.envs.base import WorldFailure
from troupe.envs.execution import Execution
from troupe.sandbox import Job, Limits, LocalSandbox, Result, Verdict


class Slow:
    """A sandbox that takes its time, and fails on demand."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def run(self, job: Job, limits: Limits | None = None) -> Result:
        self.asked.append(job.source)
        await asyncio.sleep(0.01)
        if job.source == "fail":
            return Result(Verdict.INFRA, detail="no worker lives")
        return Result(Verdict.OK, stdout=job.source.encode())

    def describe(self) -> Mapping[str, object]:
        return {"isolation": "none", "unsafe": True, "layers": []}

    async def close(self) -> None:
        pass


async def test_the_same_program_runs_once_even_at_the_same_time() -> None:
    sandbox = Slow()
    execution = Execution(sandbox, Limits())
    found = await asyncio.gather(*(execution.result(Job(source)) for source in "abab"))
    assert [result.text for result in found] == [*"abab"] and sandbox.asked == ["a", "b"]
    await execution.result(Job("a"))
    await execution.result(Job("a", stdin="other"))
    assert sandbox.asked == ["a", "b", "a"] and execution.runs == 3


async def test_what_was_asked_for_least_recently_is_forgotten() -> None:
    sandbox = Slow()
    execution = Execution(sandbox, Limits(), remembered=2)
    for source in "abaca":
        await execution.result(Job(source))
    assert sandbox.asked == [*"abc"]
    await execution.result(Job("b"))
    assert sandbox.asked == [*"abcb"]


async def test_a_failure_is_not_remembered_and_fails_all_who_wait() -> None:
    sandbox = Slow()
    execution = Execution(sandbox, Limits())
    found = await asyncio.gather(*(execution.result(Job("fail")) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(error, WorldFailure) and "no worker lives" in str(error) for error in found)
    assert sandbox.asked == ["fail"]
    with pytest.raises(WorldFailure):
        await execution.result(Job("fail"))
    assert sandbox.asked == ["fail", "fail"]


async def test_one_who_stops_waiting_does_not_stop_the_others() -> None:
    execution = Execution(Slow(), Limits())
    first, second = (asyncio.create_task(execution.result(Job("a"))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).text == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_it_says_what_protects_the_trainer(programs: LocalSandbox) -> None:
    assert await Execution(Slow(), Limits()).open() == {"isolation": "none", "unsafe": True}
    assert (await Execution(programs, Limits()).open())["unsafe"] is False

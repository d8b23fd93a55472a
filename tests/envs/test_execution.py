"""Programs of agents: each is run once, and a failed sandbox is no result."""

import asyncio
from collections.abc import Mapping

import pytest

from troupe.envs.base import WorldFailure
from troupe.envs.execution import Executor
from troupe.sandbox import Call, Expression, Job, Limits, LocalSandbox, Result, Verdict


class Slow:
    """A sandbox that takes its time, and fails on demand."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    async def run(self, job: Job, limits: Limits | None = None) -> Result:
        self.sources.append(job.source)
        await asyncio.sleep(0.01)
        if job.source == "fail":
            return Result(Verdict.INFRA, detail="no worker lives")
        return Result(Verdict.OK, stdout=job.source.encode("utf-8", "replace"))

    def describe(self) -> Mapping[str, object]:
        return {"isolation": "none", "unsafe": True, "layers": []}

    async def close(self) -> None:
        pass


async def test_the_same_program_runs_once_even_at_the_same_time() -> None:
    sandbox = Slow()
    execution = Executor(sandbox, Limits())
    results = await asyncio.gather(*(execution.result(Job(source)) for source in "abab"))
    assert [result.text for result in results] == [*"abab"] and sandbox.sources == ["a", "b"]
    await execution.result(Job("a"))
    await execution.result(Job("a", stdin="other"))
    assert sandbox.sources == ["a", "b", "a"] and execution.runs == 3


async def test_the_least_recently_used_result_is_dropped() -> None:
    sandbox = Slow()
    execution = Executor(sandbox, Limits())
    await execution.result(Job("a"))
    execution.cache_bytes = 5 * execution.used_bytes // 2
    for source in "abaca":
        await execution.result(Job(source))
    assert sandbox.sources == [*"abc"]
    await execution.result(Job("b"))
    assert sandbox.sources == [*"abcb"]


async def test_the_cache_is_bounded_in_memory(programs: LocalSandbox) -> None:
    """Programs may give a quarter of a MiB of JSON, which is many times as much as objects."""
    execution = Executor(programs, Limits(), cache_bytes=1 << 20)
    jobs = [Job(f"def f(n):\n    return [[]] * n  # {i}", entry=Call("f", [10_000])) for i in range(6)]
    sizes = []
    for job in jobs:
        assert len((await execution.result(job)).value) == 10_000
        sizes.append(execution.used_bytes)
    assert sizes[0] > 500_000 and max(sizes) <= 1 << 20 and sizes[-1] == sizes[0]
    await execution.result(jobs[-1])
    assert execution.runs == 6, "the last one is in the cache"
    huge = Job("def f(n):\n    return [[]] * n", entry=Call("f", [50_000]))
    await execution.result(huge)
    await execution.result(huge)
    assert (execution.runs, execution.used_bytes) == (8, 0)


async def test_jobs_that_differ_in_anything_are_several() -> None:
    execution = Executor(Slow(), Limits())
    jobs = [Job("a", entry=Call("f", args)) for args in ([1], [True], [1.0], ["1"], [[1]])]
    jobs += [Job("a", entry=Expression("f")), Job("a", seed=1), Job("", "a"), Job("\ud800"), Job("\udc00")]
    await asyncio.gather(*map(execution.result, jobs))
    assert execution.runs == len(jobs)


async def test_a_failure_is_not_cached_and_fails_all_who_wait() -> None:
    sandbox = Slow()
    execution = Executor(sandbox, Limits())
    results = await asyncio.gather(*(execution.result(Job("fail")) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(error, WorldFailure) and "no worker lives" in str(error) for error in results)
    assert sandbox.sources == ["fail"]
    with pytest.raises(WorldFailure):
        await execution.result(Job("fail"))
    assert sandbox.sources == ["fail", "fail"]


async def test_a_cancelled_request_does_not_stop_the_others() -> None:
    execution = Executor(Slow(), Limits())
    first, second = (asyncio.create_task(execution.result(Job("a"))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).text == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_it_says_what_protects_the_trainer(programs: LocalSandbox) -> None:
    assert await Executor(Slow(), Limits()).open() == {"isolation": "none", "unsafe": True}
    assert (await Executor(programs, Limits()).open())["unsafe"] is False

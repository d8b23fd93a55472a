"""When requests begin, and in which order, by vLLM's scheduler with Troupe's rounds; nothing is decoded."""

from random import Random
from typing import Any

import pytest

from troupe.experience import Request, Sampling
from troupe.rollout.requests import order
from troupe.rollout.vllm.replies import ORDER

from .conftest import NEEDS_VLLM

pytestmark = NEEDS_VLLM
KEYS = [((2, "a"), 7), ((10, "a"), 1), ((10, "b"), 0), (("x",), 3), (("x",), 5)]
ASKED = [Request("plan", (4, 5, i), 2, Sampling(), seed, key) for i, (key, seed) in enumerate(KEYS)]


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Notes in ``begun`` what vLLM's scheduler is given to decode."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from troupe.rollout.vllm.scheduler import RoundScheduler

    made = RoundScheduler.__new__(RoundScheduler)
    made._early, made.requests, made.begun, made.running = {}, {}, [], []
    monkeypatch.setattr(Scheduler, "add_request", lambda self, request: self.begun.append(request.request_id))
    return made


def candidates(name: object, asked: Request, early: bool) -> list[Any]:
    """As vLLM makes them of a request, after the way between processes, which makes lists of tuples."""
    from vllm import SamplingParams
    from vllm.v1.request import Request as Candidate

    def listed(part: Any) -> Any:
        return [*map(listed, part)] if isinstance(part, tuple) else part

    extra = {ORDER: listed(order(asked)[:2])} if early else None
    made = [SamplingParams(max_tokens=4, seed=asked.seed + i, extra_args=extra) for i in range(asked.n)]
    return [Candidate(f"{name}-{i}", [*asked.prompt_ids], parameters, None) for i, parameters in enumerate(made)]


@pytest.mark.parametrize("shuffle", range(4))
def test_a_round_begins_all_at_once_in_the_order_of_keys(scheduler: Any, shuffle: int) -> None:
    from vllm.v1.core.sched.interface import PauseState

    arrived = [each for name, asked in enumerate(ASKED) for each in candidates(name, asked, True)]
    for each in Random(shuffle).sample(arrived, len(arrived)):
        scheduler.add_request(each)
    assert scheduler.begun == []
    scheduler.set_pause_state(PauseState.UNPAUSED)
    assert scheduler.begun == [f"{name}-{i}" for name in expected() for i in range(2)]
    scheduler.set_pause_state(PauseState.UNPAUSED)
    assert len(scheduler.begun) == len(arrived)


def expected() -> list[int]:
    """The order that every engine keeps."""
    return sorted(range(len(ASKED)), key=lambda name: order(ASKED[name]))


def test_what_is_due_begins_when_it_arrives(scheduler: Any) -> None:
    for each in candidates("now", ASKED[0], False):
        scheduler.add_request(each)
    assert scheduler.begun == ["now-0", "now-1"]


@pytest.mark.parametrize(("ended", "left"), [(["0-0", "0-1"], ["1-0", "1-1"]), ([], None), (None, []), ("1-0", None)])
def test_what_is_given_up_before_its_round_does_not_begin(scheduler: Any, ended: Any, left: list[str] | None) -> None:
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.request import RequestStatus

    for name in (0, 1):
        for each in candidates(name, ASKED[name], True):
            scheduler.add_request(each)
    scheduler.finish_requests(ended, RequestStatus.FINISHED_ABORTED)
    scheduler.set_pause_state(PauseState.UNPAUSED)
    if left is None:
        left = [name for name in ["0-0", "0-1", "1-0", "1-1"] if name != ended]
    assert scheduler.begun == left

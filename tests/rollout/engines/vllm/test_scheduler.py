"""When requests begin, in which order and in how many messages, by vLLM's scheduler with Troupe's rounds; nothing is
decoded.
"""

from random import Random
from typing import Any

import pytest

from troupe.experience import Request, Sampling
from troupe.rollout.engines.requests import order
from troupe.rollout.engines.vllm.replies import CANDIDATES, ORDER

from .conftest import NEEDS_VLLM

pytestmark = NEEDS_VLLM
KEYS = [((2, "a"), 7), ((10, "a"), 1), ((10, "b"), 0), (("x",), 3), (("x",), 5)]
ASKED = [Request("plan", (4, 5, i), 2, Sampling(), seed, key) for i, (key, seed) in enumerate(KEYS)]


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Notes in ``begun`` what vLLM's scheduler is given to decode."""
    from vllm.v1.core.sched.scheduler import Scheduler

    from troupe.rollout.engines.vllm.scheduler import RoundScheduler

    made = RoundScheduler.__new__(RoundScheduler)
    made._early, made.requests, made.begun, made.running = {}, {}, [], []
    monkeypatch.setattr(Scheduler, "add_request", lambda self, request: self.begun.append(request.request_id))
    return made


def first(name: str, n: int, early: bool = False) -> Any:
    """What is sent of a request for ``n`` candidates."""
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.v1.request import Request as Candidate

    extra = ({CANDIDATES: n} if n > 1 else {}) | ({ORDER: [0]} if early else {})
    parameters = SamplingParams(max_tokens=4, seed=7, extra_args=extra or None, detokenize=False)
    adapter = LoRARequest("plan", 1, "memory")
    given = {"client_index": 0, "arrival_time": 1.5, "lora_request": adapter, "block_hasher": lambda _: [b"block"]}
    return Candidate(f"0_{name}" if n > 1 else name, [4, 5], parameters, None, **given)


@pytest.mark.parametrize("early", [True, False])
def test_a_request_comes_in_one_message_for_all_its_candidates(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.core.sched.scheduler import Scheduler

    monkeypatch.setattr(Scheduler, "add_request", lambda self, request: self.begun.append(request))
    scheduler.add_request(first("7-ab", 3, early))
    scheduler.add_request(first("8-cd", 1, early))
    scheduler.set_pause_state(PauseState.UNPAUSED)
    begun = {request.request_id: request for request in scheduler.begun}
    assert sorted(begun) == ["0_7-ab", "1_7-ab", "2_7-ab", "8-cd"]
    assert [begun[f"{i}_7-ab"].sampling_params.seed for i in range(3)] == [7, 8, 9]
    asked, *others = (begun[f"{i}_7-ab"] for i in range(3))
    shared = "prompt_token_ids", "all_token_ids", "block_hashes", "lora_request", "client_index", "arrival_time"
    for other in others:
        assert all(list_(getattr(other, name)) == list_(getattr(asked, name)) for name in shared)
        other.append_output_token_ids(9)
    assert list(asked.all_token_ids) == [4, 5] and asked.block_hashes == [b"block"]


def list_(value: Any) -> Any:
    """vLLM's read-only lists equal nothing but themselves."""
    return list(value) if hasattr(value, "__iter__") else value


@pytest.fixture
def whole(scheduler: Any) -> Any:
    from troupe.rollout.engines.vllm.scheduler import WholeScheduler

    scheduler.__class__ = WholeScheduler
    scheduler._parts, scheduler._ended = {}, {}
    return scheduler


def spoken(whole: Any, candidate: Any, token: int, ends: bool = False) -> list[tuple[str, list[int]]]:
    """What is sent because ``candidate`` has said ``token``."""
    from vllm.v1.engine import EngineCoreOutput, FinishReason

    part = EngineCoreOutput(candidate.request_id, [token], finish_reason=FinishReason.STOP if ends else None)
    return [(told.request_id, told.new_token_ids) for told in whole._told(candidate, part)]


def test_an_answer_goes_back_when_its_last_candidate_has_ended(whole: Any) -> None:
    from troupe.rollout.engines.vllm.scheduler import candidates

    a, b = candidates(first("7", 2))
    [alone] = candidates(first("8", 1))
    assert spoken(whole, a, 1) == spoken(whole, b, 2, ends=True) == spoken(whole, alone, 3) == []
    assert spoken(whole, alone, 4, ends=True) == [("8", [3, 4])]
    assert spoken(whole, a, 5, ends=True) == [("1_7", [2]), ("0_7", [1, 5])]
    assert whole._parts == whole._ended == {}


def test_text_with_stop_strings_goes_back_as_it_is_spoken(whole: Any) -> None:
    from troupe.rollout.engines.vllm.scheduler import candidates

    a, _ = candidates(first("7", 2))
    a.sampling_params.detokenize = True
    assert spoken(whole, a, 1) == [("0_7", [1])] and spoken(whole, a, 2, ends=True) == [("0_7", [2])]


def test_nothing_is_kept_of_what_is_given_up(whole: Any) -> None:
    from vllm.v1.request import RequestStatus

    from troupe.rollout.engines.vllm.scheduler import candidates

    a, b = candidates(first("7", 2))
    spoken(whole, a, 1)
    spoken(whole, b, 2, ends=True)
    whole.finish_requests(["0_7", "1_7"], RequestStatus.FINISHED_ABORTED)
    assert whole._parts == whole._ended == {}


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

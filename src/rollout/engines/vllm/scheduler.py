"""vLLM's schedulers, but that requests may wait for their round, and that messages are few.

A request that names its place in a round is sent while the round before is still decoded, and begins when generation is
resumed, together with all that wait: one message a round, and the order of arrival cannot matter.

A request comes in one message, for all its candidates, and on a CPU its completions go back in one, when the last has
ended.  vLLM would send each candidate by itself, and three arrays with each token; for small models, writing and
reading them costs as much as the model.  The learner has no use for a part of an answer, unless stop strings end it:
vLLM finds those where messages are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.outputs import LogprobsLists
from vllm.v1.request import Request

from .replies import CANDIDATES, ORDER


class RoundScheduler(Scheduler):
    """Requests come with all their candidates; those that name their place in the order begin together, in it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._early: dict[str, Request] = {}

    def add_request(self, request: Request) -> None:
        early = ORDER in (request.sampling_params.extra_args or ())
        for candidate in candidates(request):
            if early:
                self._early[candidate.request_id] = candidate
            else:
                super().add_request(candidate)

    def set_pause_state(self, pause_state: PauseState) -> None:
        super().set_pause_state(pause_state)
        if pause_state == PauseState.UNPAUSED:
            early, self._early = sorted(self._early.values(), key=_place), {}
            for request in early:
                super().add_request(request)

    def finish_requests(self, request_ids: Any, *given: Any, **named: Any) -> Any:
        ended = [request_ids] if isinstance(request_ids, str) else request_ids and list(request_ids)
        for name in [*self._early, *self.requests] if ended is None else ended:
            self._forget(name)
        return super().finish_requests(ended, *given, **named)

    def _forget(self, name: str) -> None:
        """Nothing of it is wanted any more."""
        self._early.pop(name, None)


def _place(request: Request) -> tuple[Any, ...]:
    """By the order of keys, then by what else tells requests and their candidates apart."""
    parameters = request.sampling_params
    return parameters.extra_args[ORDER], parameters.seed, request.prompt_token_ids


def candidates(first: Request) -> Iterator[Request]:
    """All candidates of the request whose first has arrived, as vLLM would have sent and named them."""
    yield first
    for i in range(1, width(first)):
        own = copy(first.sampling_params)
        own.seed += i
        made = Request(
            f"{i}_{asked(first)}",
            first.prompt_token_ids,
            own,
            None,
            client_index=first.client_index,
            arrival_time=first.arrival_time,
            lora_request=first.lora_request,
        )
        made.block_hashes, made._block_hasher = first.block_hashes.copy(), first._block_hasher
        yield made


def width(candidate: Request) -> int:
    """Of how many candidates it is one."""
    return int((candidate.sampling_params.extra_args or {}).get(CANDIDATES, 1))


def asked(candidate: Request) -> str:
    """The name of the request that it is a candidate of; "7" of "0_7", "1_7" and so on."""
    name = candidate.request_id
    return name.partition("_")[2] if width(candidate) > 1 else name


class AheadScheduler(RoundScheduler, AsyncScheduler):
    """For an engine that schedules a step ahead, as on a GPU."""


class WholeScheduler(RoundScheduler):
    """For an engine that does not, as on a CPU."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._parts: dict[str, list[EngineCoreOutput]] = {}
        self._ended: dict[str, list[EngineCoreOutput]] = {}

    def update_from_output(self, *given: Any, **named: Any) -> Any:
        under_way = self.requests.copy()  # the call forgets those that end
        found = super().update_from_output(*given, **named)
        for message in found.values():
            parts = message.outputs
            message.outputs = [told for part in parts for told in self._told(under_way[part.request_id], part)]
        return found

    def _told(self, request: Request, part: EngineCoreOutput) -> list[EngineCoreOutput]:
        """What is to be sent because of ``part``."""
        if request.sampling_params.detokenize:
            return [part]
        parts = self._parts.setdefault(part.request_id, [])
        parts.append(part)
        if part.finish_reason is None:
            return []
        ended = self._ended.setdefault(asked(request), [])
        ended.append(whole(self._parts.pop(part.request_id)))
        return self._ended.pop(asked(request)) if len(ended) == width(request) else []

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._parts.pop(name, None)
        self._ended.pop(name.partition("_")[2], None)


def whole(parts: list[EngineCoreOutput]) -> EngineCoreOutput:
    """One message in place of several, as the last of them says it."""
    if len(parts) == 1:
        return parts[0]
    columns = [part.new_logprobs for part in parts if part.new_logprobs is not None]
    last = parts[-1]
    last.prefill_stats = next((part.prefill_stats for part in parts if part.prefill_stats is not None), None)
    last.new_token_ids = [token for part in parts for token in part.new_token_ids]
    if columns:
        arrays = [np.concatenate([column[i] for column in columns]) for i in range(3)]
        last.new_logprobs = LogprobsLists(*arrays, None)
    return last

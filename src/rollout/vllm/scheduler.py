"""vLLM's schedulers, but that requests may wait for their round, and that a completion is told of when it has ended.

A request that names its place in a round is sent while the round before is still decoded, and begins when generation is
resumed, together with all that wait: one message a round, and the order of arrival cannot matter.

Each token's message carries three arrays; for small models, writing and reading them costs as much as the model.  The
learner has no use for a part of a completion, unless stop strings end it: vLLM finds those where messages are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.outputs import LogprobsLists
from vllm.v1.request import Request

from .replies import ORDER


class RoundScheduler(Scheduler):
    """Requests that name their place in the order begin together, in that order."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._early: dict[str, Request] = {}

    def add_request(self, request: Request) -> None:
        if request.sampling_params.extra_args:
            self._early[request.request_id] = request
        else:
            super().add_request(request)

    def set_pause_state(self, pause_state: PauseState) -> None:
        super().set_pause_state(pause_state)
        if pause_state == PauseState.UNPAUSED:
            early, self._early = sorted(self._early.values(), key=_place), {}
            for request in early:
                super().add_request(request)

    def finish_requests(self, request_ids: Any, *given: Any, **named: Any) -> Any:
        ended = [request_ids] if isinstance(request_ids, str) else request_ids and list(request_ids)
        for name in list(self._early) if ended is None else ended:
            self._early.pop(name, None)
        return super().finish_requests(ended, *given, **named)


def _place(request: Request) -> tuple[Any, ...]:
    """By the order of keys, then by what else tells requests and their candidates apart."""
    parameters = request.sampling_params
    return parameters.extra_args[ORDER], parameters.seed, request.prompt_token_ids


class AheadScheduler(RoundScheduler, AsyncScheduler):
    """For an engine that schedules a step ahead, as on a GPU."""


class WholeScheduler(RoundScheduler):
    """For an engine that does not, as on a CPU."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._parts: dict[str, list[EngineCoreOutput]] = {}

    def update_from_output(self, *given: Any, **named: Any) -> Any:
        found = super().update_from_output(*given, **named)
        for message in found.values():
            message.outputs = [told for part in message.outputs if (told := self._gathered(part)) is not None]
        if len(self._parts) > len(self.requests):  # some were given up
            self._parts = {name: parts for name, parts in self._parts.items() if name in self.requests}
        return found

    def _gathered(self, part: EngineCoreOutput) -> EngineCoreOutput | None:
        if part.finish_reason is not None:
            return whole([*self._parts.pop(part.request_id, ()), part])
        if self.requests[part.request_id].sampling_params.detokenize:
            return part
        self._parts.setdefault(part.request_id, []).append(part)
        return None


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

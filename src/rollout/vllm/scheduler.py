"""vLLM's scheduler, but that it tells of a completion when it has ended, and not at every token.

Each token's message carries three arrays; for small models, writing and reading them costs as much as the model.  The
learner has no use for a part of a completion, unless stop strings end it: vLLM finds those where messages are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.outputs import LogprobsLists


class WholeScheduler(Scheduler):
    """For an engine that does not schedule a step ahead, as on a CPU."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._parts: dict[str, list[EngineCoreOutput]] = {}

    def update_from_output(self, *given: Any, **named: Any) -> Any:
        streamed = {name for name, request in self.requests.items() if request.sampling_params.detokenize}
        found = super().update_from_output(*given, **named)
        for message in found.values():
            told = (each if each.request_id in streamed else self._gathered(each) for each in message.outputs)
            message.outputs = [each for each in told if each is not None]
        if len(self._parts) > len(self.requests):  # some were given up
            self._parts = {name: parts for name, parts in self._parts.items() if name in self.requests}
        return found

    def _gathered(self, part: EngineCoreOutput) -> EngineCoreOutput | None:
        if part.finish_reason is None:
            self._parts.setdefault(part.request_id, []).append(part)
            return None
        return whole([*self._parts.pop(part.request_id, ()), part])


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

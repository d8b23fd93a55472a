"""One process of vLLM's, with those below it, in Troupe's terms: requests, weights, probes and memory."""

from __future__ import annotations

import asyncio
import gc
import itertools
import secrets
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from ....experience import Completion, Request
from ..base import EngineError
from ..local import Answer
from .digest import Digests, WeightsMismatchError
from .expected import TOP, ExpectedWeights, WeightSet
from .launch import Folder, find_placement, start
from .replies import Replies
from .transfer import Transfer, saved_adapter

T = TypeVar("T")
Memory = Literal["weights", "kv_cache"]
POLL_S = 1.0
"""How often to look whether a process that owes an answer lives."""
GRACE_S = 30
"""For how long an engine may wait for the processes of its shards to end."""


class EngineDiedError(EngineError):
    """vLLM's process has ended by itself, or had to be ended; the message names the policy."""


@dataclass(eq=False)
class Pending:
    """A request and its caller, who waits for ``answer``; ``server``, which has taken it, answers in ``queue``."""

    request: Request
    answer: Answer
    server: EngineServer | None = None
    queue: Any = None


@dataclass(frozen=True)
class ProbeResult:
    """Log-probabilities (nats) of the likeliest tokens after a sequence, and how many of its tokens were cached."""

    logprobs: Mapping[int, float]
    cached: int


class EngineServer:
    """An ``AsyncLLM`` that starts with the model's ``expected`` weights; adapters come by :meth:`send`.

    ``level`` is that of :meth:`sleep`, 0 where there is nothing to offload; ``offloaded`` is what is not there now.
    The constructor blocks for seconds or minutes, and raises as :func:`.launch.start`.
    """

    def __init__(
        self, expected: ExpectedWeights, tokenizer: PreTrainedTokenizerBase, replies: Replies, replica: int = 0
    ) -> None:
        self.expected, self.settings, self.replies = expected, expected.settings, replies
        self._ids = itertools.count()
        self._temporary = Folder()
        self.folder = self._temporary.path
        try:
            placement = find_placement(expected, replica)
            # Of one number, engines beside each other and after each other would sample alike.
            seed = 0 if replies.seeded else secrets.randbits(31)
            self._llm = start(expected, tokenizer, placement, self.folder, seed)
        except BaseException:
            self._temporary.cleanup()
            raise
        self.transfer = Transfer(self.call, placement, expected.device, self.folder)
        self.level = self.settings.sleep if placement.gpus else 0
        self.offloaded: set[Memory] = set()
        self._note_progress()
        # Each full collection would look at all of vLLM's modules: half a second, again and again.
        gc.collect()
        gc.freeze()

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def submit(self, pending: Sequence[Pending], *, together: bool = False) -> None:
        """Hand requests over in this order; ``together``, none of them is decoded before all are there."""
        if together:  # not by pause_generation(), which sleeps for 20 ms afterwards
            await self._alive(self.llm.engine_core.pause_scheduler_async("keep", clear_cache=False))
        try:
            await self._alive(self._add_all(pending))
        finally:
            if together:
                await self._alive(self.llm.resume_generation())

    async def answer(self, pending: Pending) -> list[Completion]:
        """The completions of a request, which is submitted here where another process had taken it.

        A caller that goes away takes the request with it.
        """
        if pending.server is not self:
            await self.submit([pending])
        output, told = await self._alive(self._output(pending.queue)), 0
        greedy = pending.request.sampling.temperature == 0  # then the record has 0
        while (on_token := pending.request.on_token) is not None:
            first = next(each for each in output.outputs if not each.index)
            for place, token in enumerate(first.token_ids[told:], told):
                on_token(place, token, 0.0 if greedy else first.logprobs.logprobs[place])
            told = len(first.token_ids)
            if output.finished:
                break
            output = await self._alive(self._output(pending.queue))
        version = self.expected.policies[pending.request.policy].version
        return self.replies.completions(pending.request, output, version)

    async def _add_all(self, pending: Sequence[Pending]) -> None:
        for each in pending:
            parameters = self.replies.parameters(each.request)
            each.queue = await self._add(each.request.policy, each.request.prompt_ids, parameters)
            each.server = self

    async def _add(self, policy: str, ids: Sequence[int], parameters: Any) -> Any:
        adapter = self.expected.policies[policy].adapter
        prompt = {"type": "token", "prompt_token_ids": list(ids)}
        lora = _lora_request(adapter) if adapter is not None and adapter.slot else None
        return await self.llm.add_request(str(next(self._ids)), prompt, parameters, lora_request=lora)

    async def _output(self, queue: Any) -> Any:
        try:
            return await queue.get()  # the final output alone, unless tokens are told
        except asyncio.CancelledError:
            if self._llm is not None:  # else it has ended, and all requests with it
                await self._llm.abort(queue.request_id, internal=True)
            raise

    # ---- weights: nothing may be under way --------------------------------------------------------------------------

    async def send(self, weights: WeightSet) -> None:
        """Those of the model or of an adapter.  Raises :class:`..base.EngineError` where there is no space for them."""
        try:
            if weights.slot is None:
                await self.transfer.send(self.expected.source)
            elif weights.slot:
                with saved_adapter(self.folder, weights.rank, weights.tensors) as path:
                    await self._alive(self.llm.add_lora(_lora_request(weights, str(path))))
        except (OSError, SafetensorError) as error:
            raise EngineError(f"policy '{weights.label}': {error}") from error

    async def digests(self, weights: WeightSet) -> list[Digests]:
        """Of every tensor that each process computes with in place of ``weights``, by its name in the checkpoint."""
        return list(map(dict, await self.call("troupe_digests", weights.slot, weights.rank)))

    async def forget(self) -> None:
        """Empty the cache of prefixes.  Raises :class:`.digest.WeightsMismatchError` where vLLM does not."""
        if not await self._alive(self.llm.reset_prefix_cache()):
            why = "vLLM did not empty its cache of prefixes, which were read with other weights"
            raise WeightsMismatchError(f"policy '{self.expected.label}': {why}")

    async def probe(self, policy: str, sequences: Sequence[tuple[int, ...]]) -> list[ProbeResult]:
        """The likeliest tokens after each of ``sequences``, one after the other."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        results, top = [], min(TOP, self.expected.vocabulary)
        for ids in sequences:
            parameters = SamplingParams(max_tokens=1, seed=0, logprobs=top, detokenize=False)
            parameters.output_kind = RequestOutputKind.FINAL_ONLY
            queue = await self._alive(self._add(policy, ids, parameters))
            output = await self._alive(self._output(queue))
            logprobs = {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()}
            results.append(ProbeResult(logprobs, output.num_cached_tokens))
        return results

    async def call(self, method: str, *arguments: Any) -> list[Any]:
        """The results of a method of vLLM's workers, of which a model has ``tensor_parallel``."""
        return list(await self._alive(self.llm.collective_rpc(method, args=arguments)))

    # ---- memory -----------------------------------------------------------------------------------------------------

    async def sleep(self) -> None:
        """Offload the GPU's memory.  Nothing may be under way, and nothing can be asked meanwhile."""
        try:
            await self._alive(self.llm.sleep(self.level))
        except BaseException:  # nobody knows what is offloaded by then
            self.kill()
            raise
        self.offloaded = {"weights", "kv_cache"}

    async def wake(self, memory: Memory) -> None:
        """Take back what was offloaded; after level 2 its content is anything."""
        if memory in self.offloaded:
            await self._alive(self.llm.wake_up([memory]))
            self.offloaded.discard(memory)
            if memory == "weights" and self.level == 2 and self.expected.adapters:
                await self.call("troupe_clear_adapters")

    # ---- the process ------------------------------------------------------------------------------------------------

    async def _alive(self, work: Awaitable[T]) -> T:
        """The result of ``work``, which vLLM would leave undone for ever where its process ends meanwhile, or hangs.

        Raises :class:`EngineDiedError`.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        task, silent = asyncio.ensure_future(work), 0.0
        died = "has ended; it says why on stderr"
        try:
            while not task.done() and self._llm is not None and not self._llm.errored:
                started = time.monotonic()
                await asyncio.wait({task}, timeout=POLL_S)
                # An event loop that was busy with something else for long has not listened so long either.
                silent += min(time.monotonic() - started, 2 * POLL_S)
                silent = 0.0 if self._heard >= started else silent
                if silent > self.settings.stall_s and not task.done():
                    self.kill()
                    died = f"made no progress for engine.stall_s={self.settings.stall_s:g} seconds and was ended"
                    break
            if task.done():
                if type(error := task.exception()) is not Exception:  # so vLLM tells what a call has raised there
                    return task.result()
                self.kill()
                died = f"has failed and was ended: {error}"
        except EngineDeadError:
            pass
        finally:
            task.cancel()
        raise self._died(died)

    def _note_progress(self) -> None:
        """Keep in ``_heard`` when the process last sent something."""
        core = self.llm.engine_core
        get, self._heard = core.get_output_async, time.monotonic()

        async def noted() -> Any:
            outputs = await get()
            self._heard = time.monotonic()
            return outputs

        core.get_output_async = noted

    @property
    def llm(self) -> Any:
        """Raises :class:`EngineDiedError` after :meth:`shutdown`."""
        if self._llm is None:
            raise self._died("has ended; it says why on stderr")
        return self._llm

    def _died(self, why: str) -> EngineDiedError:
        return EngineDiedError(f"policy '{self.expected.label}': vLLM's process {why}")

    @property
    def process(self) -> Any:
        """The engine's; those of a tensor parallel model's shards end with it."""
        [process] = self.llm.engine_core.resources.engine_manager.processes
        return process

    def kill(self) -> None:
        """End the process at once."""
        if self._llm is not None:
            self.process.kill()

    def shutdown(self) -> None:
        """End the process and remove its files.  What is still awaited ends with :class:`EngineDiedError`."""
        if self._llm is None:
            return
        llm, self._llm = self._llm, None
        llm.shutdown(**({"timeout": GRACE_S} if self.settings.tensor_parallel > 1 else {}))
        llm.shutdown = lambda: None  # its destructor would do so once more, and fail where the interpreter ends
        gc.unfreeze()
        gc.collect()
        self._temporary.cleanup()


def _lora_request(adapter: WeightSet, path: str | None = None) -> Any:
    """vLLM's.  Without a ``path`` to load it from, the adapter is in its slot already."""
    from vllm.lora.request import LoRARequest

    return LoRARequest(adapter.label, adapter.slot, path or "loaded", load_inplace=path is not None)

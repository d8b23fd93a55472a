"""vLLM's process for one policy, in Troupe's terms: requests, weights, what it computes with and what it sings."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...experience import Completion, Request
from ..base import EngineError
from .canary import TOP, Song
from .digest import Digests, WeightsMismatchError
from .launch import VllmSettings, folder, start
from .replies import Replies

T = TypeVar("T")
PATIENCE_S = 1.0
"""How often it is looked whether the process still lives, while an answer is awaited."""


class EngineDiedError(EngineError):
    """vLLM's process has ended by itself; the message names the policy."""


@dataclass(frozen=True)
class Flight:
    """A request that vLLM has taken; ``queue`` will hold its answer."""

    request: Request
    queue: Any


class Server:
    """An ``AsyncLLM`` and what its process needs.  See :func:`.launch.start` for what the constructor raises."""

    def __init__(
        self, policy: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, settings: VllmSettings
    ) -> None:
        self.policy, self.settings = policy, settings
        self.replies = Replies(policy, model, tokenizer)
        self._ids = itertools.count()
        self._folder = folder()
        try:
            self._llm = start(policy, model, tokenizer, settings, Path(self._folder.name))
        except BaseException:
            self._folder.cleanup()
            raise

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def submit(self, request: Request) -> Flight:
        """Hand ``request`` over."""
        prompt = {"prompt_token_ids": list(request.prompt_ids)}
        parameters = self.replies.parameters(request)
        queue = await self._alive(self._llm.add_request(str(next(self._ids)), prompt, parameters))
        return Flight(request, queue)

    async def land(self, flight: Flight, version: int) -> list[Completion]:
        """Its completions, sampled with ``version``.  A caller that goes away takes the request with it."""
        return self.replies.completions(flight.request, await self._alive(self._answer(flight.queue)), version)

    async def _answer(self, queue: Any) -> Any:
        try:
            while not (output := queue.get_nowait() or await queue.get()).finished:
                pass
            return output
        except asyncio.CancelledError:
            await self._llm.abort(queue.request_id, internal=True)
            raise
        finally:
            queue.close()

    @asynccontextmanager
    async def gathering(self) -> AsyncIterator[None]:
        """What is submitted inside is decoded from the end of it on, all together."""
        await self._alive(self._llm.pause_generation(mode="keep", clear_cache=False))
        try:
            yield
        finally:
            await self._alive(self._llm.resume_generation())

    # ---- weights ----------------------------------------------------------------------------------------------------

    async def replace(self, weights: Mapping[str, Tensor]) -> None:
        """All weights, and an empty cache of prefixes.  Nothing may be under way."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        from .transfer import parts

        await self._alive(self._llm.start_weight_update())
        files = parts(weights, self.settings.torch_dtype, Path(self._folder.name))
        while (file := await asyncio.to_thread(next, files, None)) is not None:
            await self._alive(self._llm.update_weights(WeightTransferUpdateRequest({"path": str(file)})))
        await self._alive(self._llm.finish_weight_update())
        await self.forget()

    async def forget(self) -> None:
        """Empty the cache of prefixes.  Raises :class:`.digest.WeightsMismatchError` where vLLM does not."""
        if not await self._alive(self._llm.reset_prefix_cache()):
            raise WeightsMismatchError(
                f"policy '{self.policy}': vLLM did not empty its cache of prefixes, which were read with other weights"
            )

    async def digests(self) -> Digests:
        """Of every tensor that the process computes with, by its name in the checkpoint."""
        [found] = await self._alive(self._llm.collective_rpc("troupe_digests"))
        for file in Path(self._folder.name).glob("model*.safetensors"):  # were read, now that the process answers
            file.unlink()
        return dict(found)

    async def sing(self, sequences: Sequence[tuple[int, ...]], vocabulary: int) -> list[Song]:
        """The likeliest tokens after each of ``sequences``, one after the other."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        songs = []
        for ids in sequences:
            parameters = SamplingParams(
                max_tokens=1,
                seed=0,
                logprobs=min(TOP, vocabulary),
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            prompt = {"prompt_token_ids": list(ids)}
            queue = await self._alive(self._llm.add_request(str(next(self._ids)), prompt, parameters))
            output = await self._alive(self._answer(queue))
            said = {token: known.logprob for token, known in output.outputs[0].logprobs[0].items()}
            songs.append(Song(said, output.num_cached_tokens))
        return songs

    # ---- the process ------------------------------------------------------------------------------------------------

    async def _alive(self, work: Awaitable[T]) -> T:
        """The result of ``work``, which vLLM would leave undone for ever where its process ends meanwhile.

        Raises :class:`EngineDiedError`.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        task = asyncio.ensure_future(work)
        try:
            while not task.done() and not self._llm.errored:
                await asyncio.wait({task}, timeout=PATIENCE_S)
            if task.done():
                return task.result()
        except EngineDeadError:
            pass
        finally:
            task.cancel()
        raise EngineDiedError(f"policy '{self.policy}': vLLM's process has ended; it says why on stderr")

    def shutdown(self) -> None:
        """End the process and remove its files."""
        self._llm.shutdown()
        del self._llm  # or it is shut down once more when the interpreter ends, and fails
        gc.collect()
        self._folder.cleanup()

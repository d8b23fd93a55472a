"""One life of vLLM's process, in Troupe's terms: requests, weights, what it computes with and what it sings."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from transformers import PreTrainedTokenizerBase

from ....experience import Completion, Request
from ..base import EngineError
from .adapters import packed
from .believed import Belief, Believed
from .canary import TOP, Song
from .digest import Digests, WeightsMismatchError
from .launch import VllmSettings, folder, placed, start
from .replies import CANDIDATES, Replies
from .senders import Load, sender

T = TypeVar("T")
Memory = Literal["weights", "kv_cache"]
"""What of a GPU's memory vLLM lends while it sleeps."""
PATIENCE_S = 1.0
"""How often it is looked whether the process still lives, while an answer is awaited."""


class EngineDiedError(EngineError):
    """vLLM's process has ended by itself, or had to be ended; the message names the policy."""


@dataclass(frozen=True)
class Flight:
    """A request that vLLM has taken; ``queue`` will hold its answer, which is owed once it is ``due``."""

    request: Request
    server: Server
    queue: Any
    due: asyncio.Event


class Server:
    """An ``AsyncLLM`` with the weights that are ``believed``; adapters are to be given with :meth:`adapt`.

    ``level`` is that of :meth:`sleep`, 0 where there is nothing to lend; ``lent`` is what is away, and ``lost`` says
    that the weights, and all adapters, must be sent anew.

    See :func:`.launch.start` for what the constructor raises, which blocks for seconds or minutes.
    """

    def __init__(
        self, believed: Believed, tokenizer: PreTrainedTokenizerBase, replies: Replies, settings: VllmSettings
    ) -> None:
        self.believed, self.settings, self.replies = believed, settings, replies
        self._ids = itertools.count()
        self._folder = folder()
        self._heard = time.monotonic()
        path = Path(self._folder.name)
        try:
            where = placed(settings, believed.device, believed.room)
            given = believed.label, believed.model, believed.weights, tokenizer, settings, where, believed.room
            self._llm = start(*given, path)
        except BaseException:
            self._folder.cleanup()
            raise
        self._sender = sender(self, where, believed.device, path)
        self.level = settings.sleep if where.gpu is not None else 0
        self.lent: set[Memory] = set()
        self.lost = False
        self._listen()
        self._send_once()
        # Each full collection would look at all of vLLM's modules: half a second, again and again.
        gc.collect()
        gc.freeze()

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def submit(self, request: Request, due: asyncio.Event) -> Flight:
        """Hand ``request`` over; it is decoded at once where it is ``due``, else from :meth:`begin` on."""
        parameters = self.replies.parameters(request, due.is_set())
        return Flight(request, self, await self._asked(request.policy, request.prompt_ids, parameters), due)

    async def land(self, flight: Flight) -> list[Completion]:
        """Its completions.  A caller that goes away takes the request with it."""
        answer = await self._alive(self._answer(flight.queue), flight.due)
        return self.replies.completions(flight.request, answer, self.believed.policies[flight.request.policy].version)

    async def begin_round(self) -> None:
        """Decode what was submitted and not yet due, in the order of keys (see :mod:`.scheduler`)."""
        await self._alive(self._llm.resume_generation())

    async def _asked(self, policy: str, ids: Sequence[int], parameters: Any) -> Any:
        from vllm.lora.request import LoRARequest

        belief = self.believed.policies[policy]
        # The adapter is in its slot already; the path is asked for and never read.
        adapter = LoRARequest(policy, belief.slot, "memory") if belief.slot else None
        prompt = {"type": "token", "prompt_token_ids": list(ids)}
        name = str(next(self._ids))
        return await self._alive(self._llm.add_request(name, prompt, parameters, lora_request=adapter))

    async def _answer(self, queue: Any) -> Any:
        try:
            while not (output := queue.get_nowait() or await queue.get()).finished:
                pass
            return output
        except asyncio.CancelledError:
            if self._llm is not None:  # else it has ended, and all requests with it
                await self._llm.abort(queue.request_id, internal=True)
            raise
        finally:
            queue.close()

    # ---- weights ----------------------------------------------------------------------------------------------------

    async def replace(self) -> None:
        """All weights of the model, by those that are believed.  Nothing may be under way.

        Raises :class:`..base.EngineError` where there is no room for them on the way.
        """
        try:
            await self._sender.send(Load(self.believed.sent, self.believed.tied, self.settings.torch_dtype))
        except OSError as error:
            raise EngineError(
                f"policy '{self.believed.label}': weights did not reach vLLM's process: {error}"
            ) from error
        self.lost = False

    async def prepare(self, info: dict[str, Any]) -> None:
        """See :class:`.senders.Line`."""
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        await self._alive(self._llm.init_weight_transfer_engine(WeightTransferInitRequest(info)))

    async def begin(self) -> None:
        """See :class:`.senders.Line`."""
        await self._alive(self._llm.start_weight_update())

    async def receive(self, info: dict[str, Any]) -> None:
        """See :class:`.senders.Line`."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        await self._alive(self._llm.update_weights(WeightTransferUpdateRequest(info)))

    async def finish(self) -> None:
        """See :class:`.senders.Line`."""
        await self._alive(self._llm.finish_weight_update())

    async def adapt(self, belief: Belief) -> None:
        """One adapter, through memory alone.  Nothing may be under way."""
        given = belief.slot, belief.rank, packed(belief.tensors)
        await self._alive(self._llm.collective_rpc("troupe_adapt", args=given))

    async def clear(self) -> None:
        """No adapter in any slot, whatever there was."""
        if self.believed.room:
            await self._alive(self._llm.collective_rpc("troupe_clear"))

    async def forget(self, policy: str) -> None:
        """Empty the cache of prefixes.  Raises :class:`.digest.WeightsMismatchError` where vLLM does not."""
        if not await self._alive(self._llm.reset_prefix_cache()):
            raise WeightsMismatchError(
                f"policy '{policy}': vLLM did not empty its cache of prefixes, which were read with other weights"
            )

    async def digests(self) -> Digests:
        """Of every tensor of the model that the process computes with, by its name in the checkpoint."""
        [found] = await self._alive(self._llm.collective_rpc("troupe_digests"))
        for file in Path(self._folder.name).glob("model*.safetensors"):  # were read, now that the process answers
            file.unlink()
        return dict(found)

    async def adapter_digests(self, belief: Belief) -> Digests:
        """Of every tensor that the process computes with for one adapter, by its name in a peft checkpoint."""
        given = belief.slot, belief.rank
        [found] = await self._alive(self._llm.collective_rpc("troupe_adapter_digests", args=given))
        return dict(found)

    async def sing(self, policy: str, sequences: Sequence[tuple[int, ...]], vocabulary: int) -> list[Song]:
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
            output = await self._alive(self._answer(await self._asked(policy, ids, parameters)))
            said = {token: known.logprob for token, known in output.outputs[0].logprobs[0].items()}
            songs.append(Song(said, output.num_cached_tokens))
        return songs

    # ---- memory -----------------------------------------------------------------------------------------------------

    async def sleep(self) -> None:
        """Lend the GPU's memory to the learner.  Nothing may be under way, and nothing can be asked meanwhile."""
        if not self.level:
            return
        await self._alive(self._llm.sleep(self.level))
        self.lent, self.lost = {"weights", "kv_cache"}, self.level == 2

    async def wake(self, memory: Memory) -> None:
        """Take back what was lent; after level 2 its content is anything."""
        if memory in self.lent:
            await self._alive(self._llm.wake_up([memory]))
            self.lent.discard(memory)

    # ---- the process ------------------------------------------------------------------------------------------------

    async def _alive(self, work: Awaitable[T], due: asyncio.Event | None = None) -> T:
        """The result of ``work``, which vLLM would leave undone for ever where its process ends meanwhile, or hangs.

        Nothing is owed before it is ``due``.  Raises :class:`EngineDiedError`.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        task = asyncio.ensure_future(work)
        silent = 0.0
        try:
            while not task.done() and self._llm is not None and not self._llm.errored:
                looked = time.monotonic()
                await asyncio.wait({task}, timeout=PATIENCE_S)
                # An event loop that was busy with something else for long has not listened so long either.
                silent += min(time.monotonic() - looked, 2 * PATIENCE_S)
                if self._heard >= looked or not (due is None or due.is_set()):
                    silent = 0.0
                if silent > self.settings.stall_s and not task.done() and self._llm is not None:
                    self.kill()
                    raise EngineDiedError(
                        f"policy '{self.believed.label}': vLLM's process made no progress for "
                        f"engine.stall_s={self.settings.stall_s:g} seconds and was ended"
                    )
            if task.done():
                if type(error := task.exception()) is Exception:  # so vLLM tells what a call has raised in its process
                    if self._llm is not None:
                        self.kill()
                    raise EngineDiedError(
                        f"policy '{self.believed.label}': vLLM's process has failed and was ended: {error}"
                    ) from error
                return task.result()
        except EngineDeadError:
            pass
        finally:
            task.cancel()
        raise EngineDiedError(f"policy '{self.believed.label}': vLLM's process has ended; it says why on stderr")

    def _listen(self) -> None:
        """Note when the process was last heard of."""
        core = self._llm.engine_core
        get = core.get_output_async

        async def heard() -> Any:
            outputs = await get()
            self._heard = time.monotonic()
            return outputs

        core.get_output_async = heard

    def _send_once(self) -> None:
        """Send the first of a request's candidates alone: :mod:`.scheduler` makes the others of it."""
        core = self._llm.engine_core
        send = core.add_request_async

        async def first(candidate: Any) -> None:
            if CANDIDATES not in (candidate.params.extra_args or ()) or candidate.request_id.startswith("0_"):
                await send(candidate)

        core.add_request_async = first

    @property
    def pid(self) -> int:
        """The process's number."""
        return int(self._process.pid)

    @property
    def _process(self) -> Any:
        [process] = self._llm.engine_core.resources.engine_manager.processes
        return process

    def kill(self) -> None:
        """End the process at once."""
        if self._llm is None:
            return
        self._process.kill()

    def shutdown(self) -> None:
        """End the process and remove its files.  What is still awaited ends with :class:`EngineDiedError`."""
        if self._llm is None:
            return
        llm, self._llm = self._llm, None
        llm.shutdown()
        llm.shutdown = lambda: None  # its destructor would do so once more, and fail where the interpreter ends
        gc.unfreeze()
        gc.collect()
        self._folder.cleanup()

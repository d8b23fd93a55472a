"""The engine over vLLM's ``AsyncLLM``: token ids in, token ids out, and weights that are proven after every update."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ....experience import Completion, Request
from ..base import EngineClosedError
from ..lockstep import inside_hold, rounds
from ..lora import Adapted
from ..requests import check_prompt, in_time, label
from .adapters import buffer_width
from .believed import Believed, LoraWay, check_merged
from .launch import VllmSettings, check_cache, check_proof
from .lives import Lives
from .replies import LEAST_TEMPERATURE
from .server import EngineDiedError, Flight, Server
from .versions import check_version


@dataclass(eq=False)
class Waiting:
    """A request and who waits for it.  Until it is ``due``, vLLM's process keeps it and does not decode it."""

    request: Request
    future: asyncio.Future[list[Completion]]
    due: asyncio.Event = field(default_factory=asyncio.Event)

    def resolve(self, completions: list[Completion]) -> None:
        if not self.future.done():
            self.future.set_result(completions)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@contextmanager
def told(waiting: Iterable[Waiting]) -> Iterator[None]:
    """Who waits gets the error that ends what stands inside, and it goes no further."""
    try:
        yield
    except Exception as error:  # whatever it is, nobody may wait for ever
        for each in waiting:
            each.fail(error)


class VllmEngine:
    """One model in a process of vLLM's, with continuous batching over all episodes and a cache of prompts' prefixes.

    ``models`` are one model, or adapters on one, which the engine takes apart; :class:`.launch.VllmSettings` tells of
    the keys from ``dtype`` to ``restarts`` and from ``device`` to ``eager``.  ``lora=merged`` merges a single policy's
    adapter into the model.

    After the start and after every :meth:`load` the digest of each tensor that the engine computes with is compared
    with the learner's, and the log-probabilities of a canary (:mod:`.canary`) may differ by at most ``canary_nats``;
    else nothing is generated.  A process that dies or hangs is replaced (:mod:`.lives`), and its requests are asked
    again.

    With ``lockstep`` (see :mod:`..lockstep`) what is handed over waits in vLLM's process until its round begins, all of
    which is then decoded in the order of ``Request.key``: on a CPU, a seed fixes the run bit for bit, unless stop
    strings end completions (vLLM finds those outside of the process that decodes, so that it stops a few tokens sooner
    or later) or the process is replaced.

    Raises :class:`.versions.UnsupportedVersionError`, :class:`..base.UnsupportedModelError`, ``ValueError``
    naming the key, :class:`..base.EngineError` where vLLM's process does not start.
    """

    def __init__(
        self,
        models: Mapping[str, PreTrainedModel | Adapted],
        tokenizer: PreTrainedTokenizerBase,
        dtype: str = "float32",
        kv_cache_gib: float = 0.5,
        block_size: int = 32,
        max_batch_rows: int = 256,
        threads: int = 1,
        stall_s: float = 300.0,
        restarts: int = 3,
        canary_nats: float = 0.01,
        lora: LoraWay = "adapter",
        lockstep: bool = True,
        device: str = "auto",
        transfer: str = "auto",
        sleep: int = 0,
        eager: bool = True,
    ) -> None:
        check_version()
        room = dtype, kv_cache_gib, block_size, max_batch_rows, threads
        settings = VllmSettings(*room, stall_s, restarts, device, transfer, sleep, eager)
        check_proof(canary_nats, lora)
        self.believed = Believed(models, settings.torch_dtype, lora, 2 * block_size + 1)
        check_cache(self.believed.label, self.believed.model.config, settings)
        self.lockstep = lockstep
        self.lives = Lives(self.believed, tokenizer, settings, canary_nats)
        self._arrived: list[Waiting] = []
        self._outstanding: set[Waiting] = set()
        self._joining: set[asyncio.Task[None]] = set()
        self._serving: dict[asyncio.Task[None], Waiting] = {}
        self._gate = asyncio.Lock()
        self._told_restarts = 0
        self._asleep = self._closed = False

    @staticmethod
    def check(
        policies: Sequence[str],
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        ranks: Mapping[str, int],
        *,
        canary_nats: float,
        lora: LoraWay,
        lockstep: bool,
        **settings: Any,
    ) -> None:
        """See :class:`..base.Checking`.  Raises as the constructor does, for a version that is not here last."""
        label, room = ", ".join(policies), VllmSettings(**settings)
        check_proof(canary_nats, lora)
        if ranks and lora == "merged":
            check_merged(policies)
        elif ranks:
            buffer_width(label, max(ranks.values()))
        check_cache(label, model.config, room)
        check_version()

    @property
    def server(self) -> Server:
        """The process that is alive, as far as is known."""
        return self.lives.server

    # ---- the interface ----------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> list[Completion]:
        """See :class:`..base.Engine`.

        Raises ``ValueError`` for an unknown policy, an empty prompt, ``n < 1``, a token outside of the vocabulary, a
        temperature that vLLM would change and a prompt that the context cannot hold together with ``max_tokens``;
        ``TimeoutError`` past the deadline; :class:`.replies.ReplyMismatchError`; :class:`.digest.WeightsMismatchError`;
        :class:`..base.EngineError` once ``restarts`` are used up; :class:`..base.EngineClosedError`; ``RuntimeError``
        while asleep or inside :func:`..lockstep.hold`.
        """
        self._check_open("generate")
        if self._asleep:
            raise RuntimeError("the engine is asleep; call wake() before generate()")
        if self.lockstep and inside_hold():
            raise RuntimeError("generate() inside hold() would wait for itself")
        self._check(request)
        waiting = Waiting(request, asyncio.get_running_loop().create_future())
        self._outstanding.add(waiting)
        waiting.future.add_done_callback(lambda _: self._outstanding.discard(waiting))
        if self.lockstep:
            self._arrived.append(waiting)
            rounds().join(self)
        else:
            waiting.due.set()
        self._joining.add(task := asyncio.create_task(self._join(waiting)))
        task.add_done_callback(self._joining.discard)
        return await in_time(request, waiting.future)

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """Replace the weights once no completion is under way, and prove it; requests wait meanwhile.

        Returns ``canary_nats`` (while asleep it is :meth:`wake` that measures it).  Raises ``ValueError`` for an
        unknown policy, weights that do not fit and those of a model that others share (nothing is changed then),
        :class:`.digest.WeightsMismatchError` where the engine has others afterwards, :class:`..base.EngineError` once
        ``restarts`` are used up.
        """
        self._check_open("load")
        self._check_policy(policy)
        async with self._gate:
            if under_way := [task for task, waiting in self._serving.items() if waiting.due.is_set()]:
                await asyncio.wait(under_way)
            self.believed.take(policy, weights, version)
            return await self.lives.renew(policy)

    def drain(self) -> dict[str, float]:
        """How often the process was replaced since the last call (``rollout/engine_restarts``)."""
        before, self._told_restarts = self._told_restarts, self.lives.restarts
        return {"rollout/engine_restarts": self.lives.restarts - before}

    async def sleep(self) -> None:
        """Finish what is under way, and lend the GPU's memory where ``sleep`` is above 0; ``generate`` raises until
        :meth:`wake`.  On a CPU there is nothing to lend.

        :meth:`load` takes the weights' memory back and :meth:`wake` the cache's, so that a transfer does not need room
        beside the cache.  Where it fails or is cancelled the engine is awake, with another process once it is needed
        if this one may have lent something.  Raises what vLLM raises, and :class:`..base.EngineError` once ``restarts``
        are used up.
        """
        self._check_open("sleep")
        self._asleep = True
        try:
            if self._outstanding:
                await asyncio.wait([waiting.future for waiting in self._outstanding])
            async with self._gate:
                await self.lives.sleep()
        except BaseException:
            self._asleep = False
            raise

    async def wake(self) -> Mapping[str, float]:
        """Undo :meth:`sleep`; what was lent is proven anew, as in :meth:`load`.  Returns ``canary_nats`` of it."""
        self._check_open("wake")
        async with self._gate:
            measured = await self.lives.wake()
        self._asleep = False
        return measured

    async def close(self) -> None:
        """End vLLM's process.  Waiting callers get :class:`EngineClosedError`.  May be called twice."""
        if self._closed:
            return
        self._closed = True
        for waiting in list(self._outstanding):
            waiting.fail(EngineClosedError("the engine was closed before the request was served"))
        for task in [*self._joining, *self._serving]:
            task.cancel()
        self.lives.end()

    # ---- serving ----------------------------------------------------------------------------------------------------

    async def serve_round(self) -> None:
        """Serve all that waits; a failure goes to every caller."""
        arrived, self._arrived = self._arrived, []
        with told(arrived):
            async with self._gate:  # whose queue is fair: all that has arrived is handed over, and nothing else
                await self.lives.prove()
                for waiting in arrived:
                    waiting.due.set()
                await self.lives.steady(Server.begin_round)
            await asyncio.wait([waiting.future for waiting in arrived])

    async def _join(self, waiting: Waiting) -> None:
        """Hand a request over; its answer is awaited in a task of its own."""
        with told([waiting]):
            async with self._gate:
                if waiting.due.is_set():
                    await self.lives.prove()
                if waiting.future.done():  # the caller has gone
                    return
                task = asyncio.create_task(self._land(waiting, await self._handed(waiting)))
            self._serving[task] = waiting
            task.add_done_callback(self._serving.pop)
            waiting.future.add_done_callback(lambda _: task.cancel())

    async def _handed(self, waiting: Waiting) -> Flight:
        return await self.lives.steady(lambda server: server.submit(waiting.request, waiting.due))

    async def _land(self, waiting: Waiting, flight: Flight) -> None:
        """Await the answer; from a process that has died, ask its successor."""
        with told([waiting]):
            while True:
                try:
                    return waiting.resolve(await flight.server.land(flight))
                except EngineDiedError as error:
                    await self.lives.succeed(flight.server, error)
                flight = await self._handed(waiting)

    # ---- checks -----------------------------------------------------------------------------------------------------

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise EngineClosedError(f"{what}() after close()")

    def _check_policy(self, policy: str) -> None:
        if policy not in self.believed.policies:
            raise ValueError(f"no policy '{policy}' in this engine; it has {', '.join(sorted(self.believed.policies))}")

    def _check(self, request: Request) -> None:
        self._check_policy(request.policy)
        check_prompt(request, self.believed.context, self.believed.vocabulary)
        if request.n < 1:
            raise ValueError(f"{label(request)}: n must be at least 1, got {request.n}")
        if 0 < request.sampling.temperature < LEAST_TEMPERATURE:
            raise ValueError(
                f"{label(request)}: vLLM raises a temperature below {LEAST_TEMPERATURE} to it, "
                f"got {request.sampling.temperature}"
            )

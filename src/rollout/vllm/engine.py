"""The engine over vLLM's ``AsyncLLM``: token ids in, token ids out, and weights that are proven after every update."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...experience import Completion, Request
from ..base import EngineClosedError
from ..lockstep import held, rounds
from ..lora import Adapted
from ..requests import check_prompt, in_time, label, order
from . import canary
from .digest import WeightsMismatchError, compare, digests
from .launch import VllmSettings, check_cache
from .replies import LEAST_TEMPERATURE
from .server import Flight, Server
from .skeleton import Skeleton
from .versions import check_version


@dataclass(eq=False)
class Waiting:
    """A request and who waits for it."""

    request: Request
    future: asyncio.Future[list[Completion]]

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
    """One policy in a process of vLLM's, with continuous batching over all episodes and a cache of prompts' prefixes.

    ``models`` has the one policy's model, which the engine takes apart; :class:`.launch.VllmSettings` tells of the keys
    from ``dtype`` to ``threads``.  After the start and after every :meth:`load` the digest of each tensor that the
    engine computes with is compared with the learner's, and the log-probabilities of a canary (:mod:`.canary`) may
    differ by at most ``canary_nats``; else nothing is generated.

    With ``lockstep`` (see :mod:`..lockstep`) what waits is handed over in rounds, in the order of ``Request.key``, and
    only then decoded: on a CPU, a seed fixes the run bit for bit, unless stop strings end completions (vLLM finds those
    outside of the process that decodes, so that it stops a few tokens sooner or later).

    Raises :class:`.versions.UnsupportedVersionError`, :class:`..support.UnsupportedModelError`, ``ValueError`` naming
    the key, :class:`..base.EngineError` where vLLM's process does not start.
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
        canary_nats: float = 0.01,
        lockstep: bool = True,
    ) -> None:
        check_version()
        self.settings = VllmSettings(dtype, kv_cache_gib, block_size, max_batch_rows, threads)
        if canary_nats <= 0:
            raise ValueError(f"engine.canary_nats must be above 0, got {canary_nats}")
        if len(models) != 1:
            raise ValueError(f"engine=vllm has one policy to a model, got {', '.join(models) or 'none'}")
        [(self.policy, model)] = models.items()
        if isinstance(model, Adapted):
            raise ValueError(f"engine=vllm does not speak with adapters yet: policy '{self.policy}' needs engine=torch")
        check_cache(self.policy, model.config, self.settings)
        self.canary_nats, self.lockstep = canary_nats, lockstep
        self.context, self.vocabulary = model.config.max_position_embeddings, model.config.vocab_size
        self.server = Server(self.policy, model, tokenizer, self.settings)
        weights, self._skeleton = model.state_dict(), Skeleton(model)
        self._sequences = canary.sequences(self.vocabulary, min(2 * block_size + 1, self.context - 1))
        self._believe(weights, 0)
        self._arrived: list[Waiting] = []
        self._outstanding: set[Waiting] = set()
        self._joining: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Lock()
        self._asleep = self._closed = False

    # ---- the interface ----------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> list[Completion]:
        """See :class:`..base.Engine`.

        Raises ``ValueError`` for another policy, an empty prompt, ``n < 1``, a token outside of the vocabulary, a
        temperature that vLLM would change and a prompt that the context cannot hold together with ``max_tokens``;
        ``TimeoutError`` past the deadline; :class:`.replies.ReplyMismatchError`; :class:`.digest.WeightsMismatchError`;
        :class:`..base.EngineClosedError`; ``RuntimeError`` while asleep or inside :func:`..lockstep.hold`.
        """
        self._check_open("generate")
        if self._asleep:
            raise RuntimeError("the engine is asleep; call wake() before generate()")
        if self.lockstep and held():
            raise RuntimeError("generate() inside hold() would wait for itself")
        self._check(request)
        waiting = Waiting(request, asyncio.get_running_loop().create_future())
        self._outstanding.add(waiting)
        waiting.future.add_done_callback(lambda _: self._outstanding.discard(waiting))
        if self.lockstep:
            self._arrived.append(waiting)
            rounds().ask(self)
        else:
            self._joining.add(task := asyncio.create_task(self._join(waiting)))
            task.add_done_callback(self._joining.discard)
        return await in_time(request, waiting.future)

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """Replace the weights once no completion is under way, and prove it; requests wait meanwhile.

        Returns ``canary_nats``.  Raises ``ValueError`` for another policy and for weights that do not fit (nothing is
        changed then), :class:`.digest.WeightsMismatchError` where the engine has others afterwards.
        """
        self._check_open("load")
        self._check_policy(policy)
        async with self._gate:
            if self._serving:
                await asyncio.wait(self._serving)
            self._believe(self._skeleton.complete(policy, weights), version)
            await self.server.replace(weights)
            return {"canary_nats": await self._prove()}

    async def sleep(self) -> None:
        """Finish what is under way; ``generate`` raises until :meth:`wake`.  vLLM's own sleep, which lends a GPU's
        memory to the learner, has nothing to lend on a CPU.
        """
        self._check_open("sleep")
        self._asleep = True
        if self._outstanding:
            await asyncio.wait([waiting.future for waiting in self._outstanding])

    async def wake(self) -> None:
        self._check_open("wake")
        self._asleep = False

    async def close(self) -> None:
        """End vLLM's process.  Waiting callers get :class:`EngineClosedError`.  May be called twice."""
        if self._closed:
            return
        self._closed = True
        for waiting in list(self._outstanding):
            waiting.fail(EngineClosedError("the engine was closed before the request was served"))
        for task in [*self._joining, *self._serving]:
            task.cancel()
        self.server.shutdown()

    # ---- serving ----------------------------------------------------------------------------------------------------

    async def play_round(self) -> None:
        """Serve all that waits; a failure goes to every caller."""
        arrived, self._arrived = sorted(self._arrived, key=lambda waiting: order(waiting.request)), []
        with told(arrived):
            async with self._gate:
                await self._prove()
                async with self.server.gathering():
                    for waiting in arrived:
                        await self._submit(waiting)
                if self._serving:
                    await asyncio.wait(self._serving)

    async def _join(self, waiting: Waiting) -> None:
        """Without lockstep: a request joins those under way."""
        with told([waiting]):
            async with self._gate:
                await self._prove()
                await self._submit(waiting)

    async def _submit(self, waiting: Waiting) -> None:
        """Hand a request over; its answer is awaited in a task of its own."""
        if waiting.future.done():  # the caller has gone
            return
        task = asyncio.create_task(self._land(waiting, await self.server.submit(waiting.request)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        waiting.future.add_done_callback(lambda _: task.cancel())

    async def _land(self, waiting: Waiting, flight: Flight) -> None:
        with told([waiting]):
            waiting.resolve(await self.server.land(flight, self.version))

    # ---- proof ------------------------------------------------------------------------------------------------------

    def _believe(self, weights: Mapping[str, Tensor], version: int) -> None:
        """What the engine ought to compute with from here on; not proven yet."""
        self._digests = digests(weights.items(), self.settings.torch_dtype)
        self._expected = canary.expected(self._skeleton, weights, self._sequences)
        self._apart = math.inf
        self.version = version

    async def _prove(self) -> float:
        """Compare the engine with the learner, once for each weights; how far the canary is apart, in nats.

        Raises :class:`.digest.WeightsMismatchError` naming the policy.
        """
        if self._apart <= self.canary_nats:
            return self._apart
        compare(self.policy, self._digests, await self.server.digests())
        songs = await self.server.sing(self._sequences, self.vocabulary)
        name = f"policy '{self.policy}', version {self.version}"
        if remembered := sum(song.remembered for song in songs):
            raise WeightsMismatchError(
                f"{name}: the engine's cache of prefixes still holds {remembered} tokens read with other weights"
            )
        self._apart = canary.difference(self._expected, songs)
        if not self._apart <= self.canary_nats:
            raise WeightsMismatchError(
                f"{name}: log-probabilities of engine and learner differ by {self._apart:.3g} nats on fixed sequences, "
                f"more than engine.canary_nats={self.canary_nats:g}"
            )
        return self._apart

    # ---- checks -----------------------------------------------------------------------------------------------------

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise EngineClosedError(f"{what}() after close()")

    def _check_policy(self, policy: str) -> None:
        if policy != self.policy:
            raise ValueError(f"no policy '{policy}' in this engine; it has {self.policy}")

    def _check(self, request: Request) -> None:
        self._check_policy(request.policy)
        check_prompt(request, self.context, self.vocabulary)
        if request.n < 1:
            raise ValueError(f"{label(request)}: n must be at least 1, got {request.n}")
        if 0 < request.sampling.temperature < LEAST_TEMPERATURE:
            raise ValueError(
                f"{label(request)}: vLLM raises a temperature below {LEAST_TEMPERATURE} to it, "
                f"got {request.sampling.temperature}"
            )

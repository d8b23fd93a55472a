"""The embedded engine: a ``transformers`` model in this process, on CPU or GPU; no server."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ....experience import Completion, Request
from ....kernels.contention import await_updates
from ....kernels.memory import first_line, out_of_memory, release
from ..base import EngineClosedError, EngineError
from ..local import LocalEngine, end_of_sequence, fail
from ..lockstep import rounds
from ..lora import Adapted, Adapter
from ..outline import Outline
from ..requests import in_time, label, order
from .checks import GIB, TorchSettings

if TYPE_CHECKING:  # and within functions, since a plan only checks settings, and transformers' models take seconds
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from .decoding import Decoder, DecodingJob
    from .forward import Forward

log = logging.getLogger(__name__)


class TorchEngine(LocalEngine):
    """Batched decoding with a cache in which the candidates of a prompt share its keys and values.

    ``models`` maps policy to model; the engine owns them (it sets their attention and, in :meth:`load`, their weights).
    A LoRA policy is a :class:`..lora.Adapted`; a model that several policies share is there once and never changed.
    ``max_batch_rows`` bounds the completions of one policy that decode together, ``max_cache_gib`` (GiB; None: nothing)
    their keys and values; others wait.  Decoding runs in a thread, so that the event loop goes on (worlds step, other
    engines decode) meanwhile.

    Where memory does not suffice, what is under way begins anew with half as many rows, with the draws of its seeds;
    the smaller number stays, and is the engine's state.

    With ``lockstep`` (see :mod:`..lockstep`) all requests that wait are decoded in rounds, in the order of
    ``Request.key``: the same requests make the same batches.  That matters because floating-point sums depend on the
    shape of a batch: on CPU, the same batches give the same bits.  Without lockstep, a request joins the running batch
    at the next token; its draws are still those of its seed, but its logits may differ in the last bits.

    With ``in_flight`` new weights are loaded between two tokens, instead of once no completion is under way.  Those
    under way go on with them, on the keys and values that the weights before have computed of prompt and earlier tokens
    (PipelineRL, arXiv 2509.19128).  Each token's log-probability is that under the weights and the cache that drew it,
    and the completion's ``versions`` say which weights these were.

    ``dtype`` (``float32``, ``bfloat16``) is that of weights, activations and cache: the engine computes with copies of
    models that have another; None: with the models as they are.

    ``prefix_cache_gib`` (GiB; 0: none) bounds the keys and values of earlier prompts and completions that are kept for
    each policy: a prompt that begins with them, token by token, is read from there on (:mod:`.prefixes`).  They are
    dropped when weights are loaded, by :meth:`sleep` and :meth:`forget`, and whenever decoding fails.

    ``prompts`` are some of the world's, token ids, on which the models are tested (:mod:`.support`).

    A greedy completion has log-probabilities 0: the distribution actually sampled from is a point mass.

    Raises :class:`..base.UnsupportedModelError` for a model that it cannot run exactly, and ``ValueError`` for settings
    that :class:`.checks.TorchSettings` refuses.
    """

    def __init__(
        self,
        models: Mapping[str, PreTrainedModel | Adapted],
        tokenizer: PreTrainedTokenizerBase,
        max_batch_rows: int = 256,
        lockstep: bool = True,
        dtype: str | None = None,
        in_flight: bool = False,
        prefix_cache_gib: float = 0,
        max_cache_gib: float | None = None,
        prompts: Sequence[Sequence[int]] = (),
    ) -> None:
        if not models:
            raise ValueError("a torch engine needs at least one policy")
        TorchSettings(max_batch_rows, lockstep, dtype, in_flight, prefix_cache_gib, max_cache_gib)  # type: ignore[arg-type]  # checks them
        super().__init__(models, lockstep)
        self.max_batch_rows, self.in_flight = max_batch_rows, in_flight
        self._cache_bytes = math.inf if max_cache_gib is None else max_cache_gib * GIB
        self._rows = max_batch_rows  # fewer, once memory did not suffice; a request with more decodes alone
        tokenizer = copy.deepcopy(tokenizer)  # of its own, because tokenizers must not be used by two threads at once
        self._decoders, self._rounding = _decoders(models, tokenizer, dtype, prefix_cache_gib * GIB, prompts)
        # Requests arrive in the event loop and are queued for decoding: in lockstep by the loop, in the order of their
        # keys, before a round; else by the worker, as they come, before a token.
        self._arrived: deque[DecodingJob] = deque()
        self._queue: deque[DecodingJob] = deque()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="torch-engine")
        self._worker_lock = asyncio.Lock()  # who holds it may change models and decoders
        self._waiting_loads = 0  # while there are any, no request is admitted; in flight, nothing is decoded
        self._serving: asyncio.Task[None] | None = None
        self._unfit: dict[str, tuple[int, int]] = {}  # rows and requests in the queue when none could join
        self._joining: list[DecodingJob] = []  # neither in the queue nor in a row yet
        self._failures = self._splits = 0

    @staticmethod
    def check(
        policies: Sequence[str],
        model: PreTrainedModel | Outline,
        tokenizer: PreTrainedTokenizerBase | None,
        ranks: Mapping[str, int],
        *,
        prompts: Sequence[Sequence[int]] = (),
        **settings: Any,
    ) -> None:
        """Raise as the constructor does, before there are any weights; see :mod:`..base`."""
        TorchSettings(**settings)
        if not isinstance(model, Outline):  # of those it runs every kind
            from .support import check_architecture

            check_architecture(policies[0], model, tokenizer)

    # ---- the interface ----------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> list[Completion]:
        """See :class:`..base.Engine`.

        Raises ``ValueError`` for an unknown policy, an empty prompt, ``n < 1`` and a prompt that the context cannot
        hold together with ``max_tokens``; ``TimeoutError`` past the deadline; ``FloatingPointError`` where logits are
        not finite; :class:`EngineClosedError`; ``RuntimeError`` while asleep or inside :func:`..lockstep.hold`.
        """
        if not 1 <= request.n <= self.max_batch_rows:
            raise ValueError(
                f"{label(request)}: n must be between 1 and engine.max_batch_rows = {self.max_batch_rows}, "
                f"got {request.n}"
            )
        from .decoding import DecodingJob

        answer = self._accept(request)

        def resolve(completions: list[Completion]) -> None:
            if not answer.done():
                answer.set_result(completions)

        deliver = partial(_call_in, asyncio.get_running_loop(), resolve)
        self._arrived.append(DecodingJob(request, deliver, answer.done))
        self._schedule()
        return await in_time(request, answer)

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """Copy ``weights`` into ``policy``'s model, in the model's dtype, once no completion is under way; with
        ``in_flight`` between two tokens.

        Requests that wait meanwhile are served with the new ones.  Raises ``ValueError`` for weights that do not fit,
        see :func:`..weights.load_into`, and for those of a model that other policies share; nothing is changed then.
        Returns how the model that the engine began with rounds (:mod:`..plain_pass`).
        """
        self._check_open("load")
        self._check_policy(policy)
        decoder = self._decoders[policy]
        sharing = [name for name, other in self._decoders.items() if other.model is decoder.model and name != policy]
        if decoder.adapter is None and sharing:
            raise ValueError(
                f"policy '{policy}': its weights are those of {', '.join(sharing)} too, and stay as they are"
            )
        self._waiting_loads += 1  # the batch runs dry, or pauses in flight, and the lock is free
        try:
            async with self._worker_lock:
                await asyncio.get_running_loop().run_in_executor(self._worker, decoder.load, weights, version)
                return self._rounding[policy]
        finally:
            self._waiting_loads -= 1

    async def forget(self) -> None:
        """See :class:`..base.Remembering`."""
        async with self._worker_lock:
            for decoder in self._decoders.values():
                decoder.forget()

    async def sleep(self) -> None:
        """Finish what is under way and give memory back; ``generate`` raises until :meth:`wake`."""
        self._check_open("sleep")
        self._asleep = True
        await self._served()
        async with self._worker_lock:
            for decoder in self._decoders.values():
                decoder.clear()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    async def wake(self) -> Mapping[str, float]:
        self._check_open("wake")
        self._asleep = False
        return {}

    def drain(self) -> dict[str, float]:
        """Since the last call: how often decoding failed (``faults/engine``), when every caller got the error; and how
        often it began anew with fewer rows for lack of memory (``faults/oom_decoding``).
        """
        failures, self._failures, splits, self._splits = self._failures, 0, self._splits, 0
        return {"faults/engine": failures, "faults/oom_decoding": splits}

    def state_dict(self) -> dict[str, int]:
        return {"rows": self._rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rows = min(state["rows"], self.max_batch_rows)

    async def close(self) -> None:
        """Waiting callers get :class:`EngineClosedError`.  May be called twice."""
        if self._closed:
            return
        self._closed = True
        fail(self._outstanding, EngineClosedError("the engine was closed before the request was served"))
        async with self._worker_lock:  # free at the next token: the worker sees that nobody waits
            self._worker.shutdown(wait=False)
            self._decoders.clear()

    # ---- rounds -----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """See to it that what has arrived is served."""
        if self.lockstep:
            rounds().join(self)
        elif self._serving is None or self._serving.done():
            self._serving = asyncio.get_running_loop().create_task(self._serve(), name="torch engine")

    async def _serve(self) -> None:
        while self._arrived or self._queue or any(decoder.rows for decoder in self._decoders.values()):
            if self._closed:
                return
            await self.serve_round()  # after a load that waits for the lock, which serves in turn

    async def serve_round(self) -> None:
        """Serve all that waits; a failure goes to every caller."""
        async with self._worker_lock:
            if self.lockstep:
                self._queue.extend(sorted(self._arrived, key=lambda job: order(job.request)))
                self._arrived.clear()
            try:
                await asyncio.get_running_loop().run_in_executor(self._worker, self._decode)
            except Exception as error:  # whatever it is, nobody may wait for ever
                self._failures += 1
                fail(self._outstanding, error)
                self._queue.clear()
                for decoder in self._decoders.values():
                    decoder.clear()
            except BaseException:  # the loop ends; the worker stops by itself, since nobody waits any more
                fail(self._outstanding, EngineClosedError("the event loop ended before the request was served"))
                raise
        if self.lockstep and self._queue:  # a load made it wait
            rounds().join(self)

    def _decode(self) -> None:
        """Decode until nothing is left, with fewer rows where memory does not suffice; in the worker thread."""
        while True:
            try:
                return self._decode_rows()
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                reason = first_line(error)
            finally:  # copies take memory, and do not follow the weights
                for decoder in self._decoders.values():
                    decoder.forward.pack(False)
            # Outside of the except clause: the exception holds what its frames have allocated.
            self._split(reason)

    def _split(self, reason: str) -> None:
        """Put back what is under way, for batches of half as many rows.

        Raises :class:`..base.EngineError` where they cannot be smaller: the completions of a request stay together.
        """
        under_way = [job for decoder in self._decoders.values() for job in decoder.jobs()]
        failed = [job for job in dict.fromkeys([*under_way, *self._joining]) if not job.is_abandoned()]
        for decoder in self._decoders.values():
            decoder.clear()
        release()
        rows = Counter[str]()
        for job in failed:
            job.restart()
            rows[job.request.policy] += job.request.n
        waiting = [*failed, *(job for job in self._queue if not job.is_abandoned())]
        if self.lockstep:
            waiting.sort(key=lambda job: order(job.request))
        self._queue, self._joining = deque(waiting), []
        if not failed:
            return
        largest, most = max(job.request.n for job in failed), min(self._rows, max(rows.values()))
        if most <= largest:
            raise EngineError(
                f"policy '{failed[0].request.policy}': decoding is out of memory with the {largest} completions of one "
                "prompt. Give fewer (algorithm.sampler.k), shorter prompts or completions "
                f"(sampling.train.max_tokens), or a device with more memory. {reason}"
            )
        self._rows, self._splits = max(most // 2, 1), self._splits + 1
        log.warning("decoding is out of memory: from now on at most %d completions together. %s", self._rows, reason)

    def _decode_rows(self) -> None:
        """Decode until nothing is left, or a load is waited for."""
        while not (self.in_flight and self._waiting_loads):
            if not self.lockstep:
                while self._arrived:
                    self._queue.append(self._arrived.popleft())
            for decoder in self._decoders.values():
                decoder.drop_abandoned()
                if self._queue and not self._waiting_loads:
                    self._admit(decoder)
            busy = [decoder for decoder in self._decoders.values() if decoder.rows]
            if not busy and (self._waiting_loads or not self._queue):
                return
            for decoder in busy:
                await_updates(decoder.small)
                decoder.step()

    def _admit(self, decoder: Decoder) -> None:
        """Let waiting jobs join, first come first served, once a quarter of the policy's rows and cache is free.

        Not as soon as one row is free: to read many prompts at once costs less than to read them one by one.  In
        lockstep, where not all fit, short prompts go first: all of a round are served in any case, and prompts of
        similar lengths need little padding.
        """
        if len(decoder.rows) > self._rows * 3 // 4 or decoder.cached_bytes > self._cache_bytes * 3 / 4:
            return
        if decoder.rows and self._unfit.get(decoder.policy) == (len(decoder.rows), len(self._queue)):
            return  # as it was when none could join
        jobs = [job for job in self._queue if not job.is_abandoned()]
        mine = [job for job in jobs if job.request.policy == decoder.policy]
        count = decoder.fitting(mine, self._rows, self._cache_bytes)
        if count < len(mine) and self.lockstep:
            mine.sort(key=lambda job: len(job.request.prompt_ids))
            count = decoder.fitting(mine, self._rows, self._cache_bytes)
        joining, waiting = mine[:count], mine[count:]
        self._queue = deque([job for job in jobs if job.request.policy != decoder.policy] + waiting)
        self._joining = joining
        if not joining:
            self._unfit[decoder.policy] = (len(decoder.rows), len(self._queue))
        else:
            await_updates(decoder.small)
            decoder.admit(joining)
            self._joining = []


def _decoders(
    models: Mapping[str, PreTrainedModel | Adapted],
    tokenizer: PreTrainedTokenizerBase,
    dtype: str | None,
    prefix_bytes: float,
    prompts: Sequence[Sequence[int]],
) -> tuple[dict[str, Decoder], dict[str, dict[str, float]]]:
    """By policy, and how their models round; a model that several policies share is converted and prepared once."""
    from .decoding import Decoder
    from .support import in_dtype, prepare

    prepared: dict[PreTrainedModel, tuple[PreTrainedModel, Forward, dict[str, float]]] = {}
    decoders: dict[str, Decoder] = {}
    rounding: dict[str, dict[str, float]] = {}
    for policy, source in models.items():
        base = source.model if isinstance(source, Adapted) else source
        if base not in prepared:
            model = in_dtype(base, dtype)
            prepared[base] = model, *prepare(policy, model, tokenizer, prompts)
        model, forward, rounding[policy] = prepared[base]
        adapter = Adapter(policy, replace(source, model=model)) if isinstance(source, Adapted) else None
        eos = end_of_sequence(model, tokenizer)
        decoders[policy] = Decoder(policy, model, forward, tokenizer, eos, adapter, prefix_bytes)
    return decoders, rounding


def _call_in(
    loop: asyncio.AbstractEventLoop, resolve: Callable[[list[Completion]], None], completions: list[Completion]
) -> None:
    """Call ``resolve`` in the caller's loop, unless that has ended: futures may be set by their own loop alone."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(resolve, completions)

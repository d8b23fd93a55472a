"""The engine over vLLM's ``AsyncLLM``: token ids in, token ids out, and weights that are proven after every update."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ....experience import Completion, Request
from ..base import EngineClosedError
from ..local import LocalEngine, fail
from ..lockstep import rounds
from ..lora import Adapted
from ..requests import in_time, order
from .settings import VllmSettings
from .versions import check_version

if TYPE_CHECKING:  # and within functions, since a plan only checks settings, and transformers' models take seconds
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..outline import Outline
    from .server import EngineServer, Pending


class VllmEngine(LocalEngine):
    """One model in a process of vLLM's, with continuous batching over all episodes and a cache of prompts' prefixes.

    ``models`` are one model, or adapters on one, which the engine takes apart; ``settings`` are the fields of
    :class:`.settings.VllmSettings`.  It is one of ``data_parallel`` engines, the ``replica``-th from 0 on
    (:mod:`..replicas`).  With ``tensor_parallel`` above 1, processes below that one have a shard of the model each.

    After the start and after every :meth:`load` the digest of each tensor that the engine computes with is compared
    with the learner's, and so are the log-probabilities after passages of ``prompts``, some of the world's, as far as
    rounding allows; else nothing is generated (:mod:`.verifier`).  A process that dies or hangs is replaced
    (:mod:`.supervisor`), and its requests are submitted again.

    With ``lockstep`` (see :mod:`..lockstep`) all requests of a round are submitted together, and each is sampled with
    its seed: on a CPU, a seed fixes the run bit for bit, unless stop strings end completions (vLLM finds those outside
    of the process that decodes, so that it stops a few tokens sooner or later) or the process is replaced.  Without, a
    request goes as soon as weights are proven, and all are sampled from one stream: vLLM samples requests with seeds
    one after the other.

    Raises :class:`.versions.UnsupportedVersionError`, :class:`..base.UnsupportedModelError`, ``ValueError`` naming the
    key, :class:`..base.EngineError` where vLLM's process does not start.
    """

    def __init__(
        self,
        models: Mapping[str, PreTrainedModel | Adapted],
        tokenizer: PreTrainedTokenizerBase,
        lockstep: bool = True,
        replica: int = 0,
        prompts: Sequence[Sequence[int]] = (),
        **settings: Any,
    ) -> None:
        from .expected import ExpectedWeights
        from .replies import Replies
        from .server import EngineServer
        from .supervisor import EngineSupervisor
        from .verifier import Verifier

        super().__init__(models, lockstep)
        self.settings = VllmSettings(**settings)
        check_version(self.settings.tensor_parallel)
        self.expected = ExpectedWeights(models, self.settings, tokenizer, prompts)
        self.settings.check(list(models), self.expected.architecture.config, self.expected.rank)
        self.replies = Replies(self.expected.architecture, tokenizer, seeded=lockstep)
        self.verifier = Verifier(self.expected)
        start = partial(EngineServer, self.expected, tokenizer, self.replies, replica)
        self.supervisor = EngineSupervisor(start, self.verifier.start, self.settings.restarts)
        self._arrived: list[Pending] = []  # and not submitted yet
        self._serving: set[asyncio.Task[None]] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Lock()
        self._drained_restarts = 0

    @staticmethod
    def check(
        policies: Sequence[str],
        model: PreTrainedModel | Outline,
        tokenizer: PreTrainedTokenizerBase | None,
        ranks: Mapping[str, int],
        *,
        lockstep: bool,
        replica: int = 0,
        prompts: Sequence[Sequence[int]] = (),
        **settings: Any,
    ) -> None:
        """See :class:`..base.Checking`.  Raises as the constructor does, for a version that is not here last."""
        checked = VllmSettings(**settings)
        checked.check(policies, model.config, max(ranks.values(), default=0))
        check_version(checked.tensor_parallel)

    @property
    def server(self) -> EngineServer:
        """The process that is alive, as far as is known."""
        return self.supervisor.server

    # ---- the interface ----------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> list[Completion]:
        """See :class:`..base.Engine`.

        Raises ``ValueError`` for a request that cannot be served; ``TimeoutError`` past the deadline; ``RuntimeError``
        while asleep or inside :func:`..lockstep.hold`; :class:`..base.EngineClosedError`; :class:`..base.EngineError`
        for weights or answers that are not the expected ones, and once ``restarts`` are used up.
        """
        self.replies.check(request)
        from .server import Pending

        pending = Pending(request, self._accept(request))
        self._arrived.append(pending)
        if self.lockstep:
            rounds().join(self)
        elif len(self._arrived) == 1:  # the next ones go with it
            _spawn(self._serving, self.serve_round())
        return await in_time(request, pending.answer)

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """Replace the weights once no completion is under way, and prove it; requests wait meanwhile.

        Returns how the model rounds (:mod:`..plain_pass`), and ``probe_nats``, which while asleep :meth:`wake`
        measures.  Raises ``ValueError`` for an
        unknown policy, weights that do not fit and those of a model that others share (nothing is changed then);
        :class:`..base.EngineError` where the engine has others afterwards, and once ``restarts`` are used up.
        """
        self._check_open("load")
        self._check_policy(policy)
        async with self._gate:
            if self._answering:
                await asyncio.wait(self._answering)
            await self.supervisor.settled()
            self.expected.update(policy, weights, version)
            await self.supervisor.with_restarts(self.verifier.verify)
            measured = self.expected.policies[policy].measured
            return measured if self.server.offloaded else measured | {"probe_nats": self.verifier.probe_nats(policy)}

    def drain(self) -> dict[str, float]:
        """How often the process was replaced since the last call (``faults/engine``)."""
        before, self._drained_restarts = self._drained_restarts, self.supervisor.restarts
        return {"faults/engine": self.supervisor.restarts - before}

    async def sleep(self) -> None:
        """Finish what is under way, and offload the GPU's memory where ``sleep`` is above 0; ``generate`` raises until
        :meth:`wake`.  On a CPU there is nothing to offload.

        :meth:`load` takes the weights' memory back and :meth:`wake` the cache's, so that a transfer does not need room
        beside the cache.  Where it fails or is cancelled the engine is awake, with another process once it is needed.
        """
        self._check_open("sleep")
        self._asleep = True
        try:
            await self._served()
            async with self._gate:
                await self.supervisor.with_restarts(self.verifier.sleep)
        except BaseException:
            self._asleep = False
            raise

    async def wake(self) -> Mapping[str, float]:
        """Undo :meth:`sleep`; what was offloaded is proven anew, as in :meth:`load`.  Returns its ``probe_nats``."""
        self._check_open("wake")
        measured = {}
        async with self._gate:
            if self.server.offloaded:
                await self.supervisor.with_restarts(self.verifier.wake)
                measured["probe_nats"] = max(map(self.verifier.probe_nats, self.expected.policies))
        self._asleep = False
        return measured

    async def close(self) -> None:
        """End vLLM's process.  Waiting callers get :class:`EngineClosedError`.  May be called twice."""
        if self._closed:
            return
        self._closed = True
        fail(self._outstanding, EngineClosedError("the engine was closed before the request was served"))
        for task in self._serving | self._answering:
            task.cancel()
        self.supervisor.close()

    # ---- serving ----------------------------------------------------------------------------------------------------

    async def serve_round(self) -> None:
        """Submit all that has arrived, in the order of ``Request.key``, and await the answers; a failure goes to every
        caller.
        """
        pending: list[Pending] = []
        try:
            async with self._gate:
                await self.supervisor.with_restarts(self.verifier.verify)
                pending = self._take_arrived()
                arrived = pending
                await self.supervisor.with_restarts(lambda server: server.submit(arrived, together=self.lockstep))
                tasks = [_spawn(self._answering, self._answer(each)) for each in pending]
            if tasks:
                await asyncio.wait(tasks)
        except Exception as error:  # whatever it is, nobody may wait for ever
            fail((each.answer for each in pending or self._take_arrived()), error)

    def _take_arrived(self) -> list[Pending]:
        """Without those whose caller has gone."""
        arrived, self._arrived = self._arrived, []
        return sorted((each for each in arrived if not each.answer.done()), key=lambda each: order(each.request))

    async def _answer(self, pending: Pending) -> None:
        """Await the answer; where the process has died, from the next one."""
        task = asyncio.current_task()
        assert task is not None
        pending.answer.add_done_callback(lambda _: task.cancel())  # the caller has gone
        try:
            result = await self.supervisor.with_restarts(lambda server: server.answer(pending))
            if not pending.answer.done():
                pending.answer.set_result(result)
        except Exception as error:  # whatever it is, nobody may wait for ever
            fail([pending.answer], error)


def _spawn(tasks: set[asyncio.Task[None]], work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """A task of ``tasks`` for as long as it runs."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task

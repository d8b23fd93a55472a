"""The proof that a process computes with the expected weights: the digest of every tensor, and probes.

A probe is a passage of text after which engine and learner must agree on the log-probabilities (:mod:`..plain_pass`).
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor

from ..plain_pass import FACTOR, rms
from .digest import WeightsMismatchError, compare
from .expected import ExpectedPolicy, ExpectedWeights, WeightSet
from .server import EngineServer, ProbeResult


class Verifier:
    """Sends what is expected, and compares.

    It notes which weights the process was sent, which are verified and which policies were probed.  New weights are new
    objects, so that nothing is proven of them.

    Every method raises :class:`.digest.WeightsMismatchError` naming the policy.
    """

    def __init__(self, expected: ExpectedWeights) -> None:
        self.expected = expected
        self._sent = WeakSet([expected.model])  # a process starts with them
        self._verified: WeakSet[WeightSet] = WeakSet()
        self._probed: WeakKeyDictionary[ExpectedPolicy, float] = WeakKeyDictionary()

    def probe_nats(self, policy: str) -> float:
        """How far engine and learner are apart after the probes of ``policy``, whose weights are proven."""
        return self._probed[self.expected.policies[policy]]

    async def start(self, server: EngineServer) -> None:
        """Verify all of a new process, which has the model's weights and no adapters."""
        self._forget_proofs()
        self._sent = WeakSet([self.expected.model])
        await self.verify(server)

    async def verify(self, server: EngineServer) -> None:
        """Send and verify what is not sent or not verified yet; the probes wait until a process is awake."""
        await server.wake("weights")
        for weights in (self.expected.model, *self.expected.adapters):
            if weights not in self._sent:
                await server.send(weights)
                self._sent.add(weights)
            if weights not in self._verified:
                for digests in await server.digests(weights):
                    compare(weights.label, weights.digests, digests)
                self._verified.add(weights)
        unproven = [policy for policy in self.expected.policies.values() if policy not in self._probed]
        if unproven and not server.offloaded:
            await server.forget()
            for policy in unproven:
                self._probed[policy] = await self._probe(server, policy)

    async def _probe(self, server: EngineServer, policy: ExpectedPolicy) -> float:
        results = await server.probe(policy.name, self.expected.sequences)
        label = f"policy '{policy.name}', version {policy.version}"
        if cached := sum(result.cached for result in results):
            raise WeightsMismatchError(
                f"{label}: the engine's cache of prefixes still holds {cached} tokens read with other weights"
            )
        # And a token after a sequence in the cache, as decoding goes: a GPU replays how it went at the start.
        results += await server.probe(policy.name, self.expected.sequences[:1])
        nats = difference(torch.cat([policy.logprobs, policy.logprobs[:1]]), results)
        rounding = policy.rounding
        if not nats <= FACTOR * rounding:
            rounding = policy.answers.rounding  # these weights' own, in case that they round worse than the first
        if not nats <= FACTOR * rounding:
            raise WeightsMismatchError(
                f"{label}: log-probabilities of engine and learner differ by {nats:.2g} nats after passages of text, "
                f"on which {self.expected.settings.dtype} moves the learner's by {rounding:.2g}"
            )
        return nats

    async def sleep(self, server: EngineServer) -> None:
        """Offload the memory of a process on a GPU, after which all is to be verified anew."""
        if server.level:
            await server.sleep()
            self._forget_proofs()
            if server.level == 2:
                self._sent.clear()

    async def wake(self, server: EngineServer) -> None:
        """Take the memory back and verify what is in it."""
        await self.verify(server)
        await server.wake("kv_cache")  # after the transfer, which needs memory too
        await self.verify(server)

    def _forget_proofs(self) -> None:
        self._verified.clear()
        self._probed.clear()


def difference(learner: Tensor, results: Sequence[ProbeResult]) -> float:
    """Between engine and learner (sequences, V), in nats, as root mean square over the tokens of all ``results``."""
    differences = [
        row[list(result.logprobs)] - torch.tensor(list(result.logprobs.values()), dtype=row.dtype)
        for row, result in zip(learner, results, strict=True)
    ]
    return rms(torch.cat(differences))

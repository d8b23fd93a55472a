"""The proof that a process computes with the expected weights: the digest of every tensor, and probes.

A probe is a fixed token sequence after which engine and learner must agree on the log-probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .digest import WeightsMismatchError, compare
from .expected import ExpectedWeights
from .server import ProbeResult, Server


class Verifier:
    """Sends what is expected, and compares; log-probabilities may differ by ``nats``.

    Every method raises :class:`.digest.WeightsMismatchError` naming the policy.
    """

    def __init__(self, expected: ExpectedWeights, nats: float) -> None:
        self.expected, self.nats = expected, nats

    async def start(self, server: Server) -> None:
        """Verify all of a new process, which has the model's weights and no adapters."""
        self.expected.mark_unverified(lost=self.expected.adapters)
        self.expected.model.sent = True
        await self.verify(server)

    async def verify(self, server: Server) -> None:
        """Send and verify what is not sent or not verified yet; the probes wait until a process is awake."""
        await server.wake("weights")
        for weights in (self.expected.model, *self.expected.adapters):
            if not weights.sent:
                await server.send(weights)
                weights.sent = True
            if not weights.verified:
                compare(weights.label, weights.digests, await server.digests(weights))
                weights.verified = True
        unproven = [name for name, policy in self.expected.policies.items() if not policy.probe_nats <= self.nats]
        if unproven and not server.offloaded:
            await server.forget()
            for name in unproven:
                await self._probe(server, name)

    async def _probe(self, server: Server, name: str) -> None:
        policy, results = self.expected.policies[name], await server.probe(name, self.expected.sequences)
        label = f"policy '{name}', version {policy.version}"
        if cached := sum(result.cached for result in results):
            raise WeightsMismatchError(
                f"{label}: the engine's cache of prefixes still holds {cached} tokens read with other weights"
            )
        if not (nats := difference(policy.logprobs, results)) <= self.nats:
            raise WeightsMismatchError(
                f"{label}: log-probabilities of engine and learner differ by {nats:.3g} nats on fixed sequences, more "
                f"than engine.probe_nats={self.nats:g}"
            )
        policy.probe_nats = nats

    async def sleep(self, server: Server) -> None:
        """Offload the memory of a process on a GPU, after which all is to be verified anew."""
        if server.level:
            await server.sleep()
            lost = (self.expected.model, *self.expected.adapters) if server.level == 2 else ()
            self.expected.mark_unverified(lost=lost)

    async def wake(self, server: Server) -> None:
        """Take the memory back and verify what is in it."""
        await self.verify(server)
        await server.wake("kv_cache")  # after the transfer, which needs memory too
        await self.verify(server)


def difference(learner: Tensor, results: Sequence[ProbeResult]) -> float:
    """The largest between engine and learner (sequences, V), in nats; infinite where one of them is not finite."""
    largest = 0.0
    for row, result in zip(learner, results, strict=True):
        engine = torch.tensor(list(result.logprobs.values()))
        nats = (row[list(result.logprobs)] - engine).abs().max().item()
        largest = max(largest, nats if math.isfinite(nats) else math.inf)
    return largest

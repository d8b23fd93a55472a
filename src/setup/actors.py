"""From what stands behind an agent to what speaks: engines without pools or optimizers, and identity by content."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..evaluation.episodes import Actor, Echo, PolicyActor, Silence
from ..evaluation.request import Temperature
from ..experience import Sampling
from ..models.loading import resolve
from ..rollout.chat_codec import ChatCodec
from ..rollout.chat_template import check_chat
from ..rollout.engines.base import Counting
from ..rollout.engines.remote.engine import RemoteEngine
from ..rollout.policy_client import PolicyClient
from .agent_assignment import Part, Remote, Weights
from .policies import check_room
from .team import build_engine, load_speaker


class ActorFactory:
    """Speakers for parts: one engine for each set of weights, loaded once."""

    def __init__(self, engine: Mapping[str, Any]) -> None:
        self._engine = dict(engine)
        self._open: dict[str, PolicyClient] = {}

    def actor(self, part: Part, temperature: Temperature) -> Actor:
        """``part`` at ``temperature``.  Raises :class:`ConfigError` naming the key that asked for weights that cannot
        be loaded.
        """
        if isinstance(part, Remote):
            return self._remote(part, temperature)
        if not isinstance(part, Weights):
            return part
        if part.base not in self._open:
            model, tokenizer, context = load_speaker(part.key, part.base, part.below)
            engine = build_engine(self._engine, {part.policy: model}, tokenizer)
            self._open[part.base] = PolicyClient(part.policy, engine, tokenizer, context, part.sampling)
        client = replace(self._open[part.base], sampling=sampled(part.sampling, temperature), chat=part.chat)
        if not isinstance(client.tokenizer, ChatCodec):
            check_chat(f"policies.{part.named}", client.tokenizer, part.chat)
        check_room(f"policies.{part.named}.sampling.eval", client.sampling, part.base, client.context)
        return PolicyActor(client)

    def _remote(self, part: Remote, temperature: Temperature) -> Actor:
        key = f"{part.policy} {part.server}"
        if key not in self._open:
            engine = RemoteEngine(part.policy, part.server)
            self._open[key] = PolicyClient(part.policy, engine, ChatCodec(), sys.maxsize, part.sampling)
        return PolicyActor(replace(self._open[key], sampling=sampled(part.sampling, temperature)))

    def drain(self) -> dict[str, float]:
        """What engines have counted since the last call, by metric."""
        found: Counter[str] = Counter()
        for client in self._open.values():
            if isinstance(client.engine, Counting):
                found.update(client.engine.drain())
        return dict(found)

    async def close(self) -> None:
        """Close every engine."""
        for client in self._open.values():
            await client.engine.close()


def sampled(own: Sampling, temperature: Temperature) -> Sampling:
    """``own`` at another temperature."""
    return own if temperature == "own" else replace(own, temperature=float(temperature))


def identity(part: Part, temperature: Temperature, digests: Mapping[str, str]) -> dict[str, Any]:
    """What decides the words of ``part``, for an evaluation's fingerprint: weights by content, not by place."""
    if isinstance(part, Silence):
        return {"silence": True}
    if isinstance(part, Echo):
        return {"echo": part.of}
    words = asdict(sampled(part.sampling, temperature))
    if isinstance(part, Remote):
        return {"remote": part.server.identity, "sampling": words}
    lies_on = {"below": digests[part.below]} if part.below else {}
    told = {"chat": dict(part.chat)} if part.chat else {}
    return {"weights": digests[part.base], **lies_on, **told, "sampling": words}


def digest(base: str) -> str:
    """The SHA-256 over the files of ``base``, a folder of weights; a hub name stands for itself."""
    folder = Path(resolve(base))
    if not folder.is_dir():
        return base
    sums = sha256()
    for file in sorted(file for file in folder.iterdir() if file.suffix in {".safetensors", ".json", ".jinja"}):
        with file.open("rb") as opened:
            while chunk := opened.read(1 << 20):
                sums.update(chunk)
    return sums.hexdigest()

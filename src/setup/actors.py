"""From what stands behind an agent to what speaks: engines without pools or optimizers, and identity by content."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..evaluation.episodes import Actor, Echo, PolicyActor, Silence
from ..evaluation.request import Temperature
from ..experience import Sampling
from ..models.loading import resolve
from ..rollout.chat_codec import ChatCodec
from ..rollout.chat_template import check_chat
from ..rollout.engines.base import Counting, Engine
from ..rollout.engines.lora import Adapted
from ..rollout.engines.remote.engine import RemoteEngine
from ..rollout.policy_client import PolicyClient
from .agent_assignment import Part, Remote, Weights
from .policies import check_room
from .team import build_engine, load_speaker


class ActorFactory:
    """Actors for parts: each set of weights is loaded once; adapters on one model, and the model by itself, share an
    engine, as they do in training, where they are known beforehand (:meth:`prepare`).
    """

    def __init__(self, engine: Mapping[str, Any]) -> None:
        self._engine = dict(engine)
        self._open: dict[str, PolicyClient] = {}

    def prepare(self, parts: Iterable[Part]) -> None:
        """Load the weights of ``parts``.  Raises :class:`ConfigError` naming the key that asked for some that cannot be
        loaded.
        """
        groups: dict[str, dict[str, Weights]] = {}
        for part in parts:
            if isinstance(part, Weights) and part.base not in self._open:
                groups.setdefault(self._model(part), {}).setdefault(part.base, part)
        for group in groups.values():
            self._load(list(group.values()))

    def _model(self, part: Weights) -> str:
        """Equal for parts that share an engine: the model that it holds."""
        if self._engine.get("lora") == "merged":  # such an engine holds the weights of one policy
            return part.base
        return resolve(part.below or part.base)

    def _load(self, group: Sequence[Weights]) -> None:
        """One engine for ``group``, whose model is one."""
        models: dict[str, PreTrainedModel | Adapted] = {}
        model: PreTrainedModel | None = None
        spoken: list[tuple[str, PreTrainedTokenizerBase, int]] = []
        for part in group:
            given, tokenizer, context = load_speaker(part.key, part.base, part.below, model)
            model = given.model if isinstance(given, Adapted) else given
            name = _unused(part.policy, models)  # policies of different runs may have one name
            models[name] = given
            spoken.append((name, tokenizer, context))
        engine = build_engine(self._engine, models, spoken[0][1])
        for part, (name, tokenizer, context) in zip(group, spoken, strict=True):
            self._open[part.base] = PolicyClient(name, engine, tokenizer, context, part.sampling)

    def actor(self, part: Part, temperature: Temperature) -> Actor:
        """``part`` at ``temperature``.  Raises :class:`ConfigError` naming the key that asked for weights that cannot
        be loaded.
        """
        if isinstance(part, Remote):
            return self._remote(part, temperature)
        if not isinstance(part, Weights):
            return part
        self.prepare([part])
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
        for engine in self._engines():
            if isinstance(engine, Counting):
                found.update(engine.drain())
        return dict(found)

    async def close(self) -> None:
        """Close every engine."""
        for engine in self._engines():
            await engine.close()

    def _engines(self) -> list[Engine]:
        """Each once."""
        return list(dict.fromkeys(client.engine for client in self._open.values()))


def _unused(name: str, taken: Container[str]) -> str:
    """``name``, numbered where it is taken."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(found for found in names if found not in taken)


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

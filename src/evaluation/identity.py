"""The identity of an evaluation: everything that decides its episodes, to be hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from os.path import isfile
from pathlib import Path
from typing import Any

from ..models.bases.base_models import digest, resolve
from .assignment import AgentSource, LocalPolicy, RemotePolicy, ScriptedPolicy
from .conditions import Condition, sampling_at
from .episodes import EchoActor
from .request import EvalRequest, Temperature


def evaluation_identity(request: EvalRequest, conditions: Sequence[Condition]) -> dict[str, Any]:
    """The identity of ``conditions``, which ``request`` asks for: worlds, tasks, samples, seed, sampling, weights."""
    policies = [
        source
        for condition in conditions
        for source in condition.assignment.values()
        if isinstance(source, LocalPolicy)
    ]
    folders = {place for policy in policies for place in (policy.weights, policy.base_model) if place}
    digests = {place: weights_digest(place) for place in folders}
    identities = [
        {
            "world": dict(condition.world_config),
            "samples": condition.samples,
            "agents": {
                agent: source_identity(source, condition.temperature, digests)
                for agent, source in condition.assignment.items()
            },
        }
        for condition in conditions
    ]
    identity = {"split": request.split, "tasks": request.tasks, "seed": request.seed, "conditions": identities}
    # Without these keys where they say nothing: so are evaluations of the time before them.
    tables = {place: digest(Path(place)) for place in _files([each.world_config for each in conditions])}
    later = {"task_seed": request.task_seed, "pass_at": list(request.pass_at), "tables": tables}
    return identity | {key: value for key, value in later.items() if value}


def source_identity(source: AgentSource, temperature: Temperature, digests: Mapping[str, str]) -> dict[str, Any]:
    """What decides the messages of ``source``; ``digests`` are those of weights, by folder or hub name."""
    if isinstance(source, EchoActor):
        return {"echo": source.of}
    if isinstance(source, ScriptedPolicy):
        return {"silence": True} if source.skill == "silent" else {"scripted": source.skill}
    sampling = asdict(sampling_at(temperature, source.sampling))
    if isinstance(source, RemotePolicy):
        return {"remote": source.server.identity, "sampling": sampling}
    below = {"below": digests[source.base_model]} if source.base_model else {}
    chat = {"chat": dict(source.chat)} if source.chat else {}
    return {"weights": digests[source.weights], **below, **chat, "sampling": sampling}


def weights_digest(weights: str) -> str:
    """The SHA-256 of the files of ``weights``, a folder, so that a copy elsewhere has the same one; a hub name stands
    for itself.
    """
    folder = Path(resolve(weights))
    if not folder.is_dir():
        return weights
    sums = sha256()
    for file in sorted(file for file in folder.iterdir() if file.suffix in {".safetensors", ".json", ".jinja"}):
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                sums.update(chunk)
    return sums.hexdigest()


def _files(config: object) -> set[str]:
    """The files that configurations of worlds name: tables of tasks, a corpus."""
    if isinstance(config, Mapping):
        return set().union(*map(_files, config.values()))
    if isinstance(config, list | tuple):
        return set().union(*map(_files, config))
    return {config} if isinstance(config, str) and isfile(config) else set()  # never raises, however long the text

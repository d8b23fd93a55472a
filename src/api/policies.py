"""The policies of a run as transformers models."""

from __future__ import annotations

from typing import NamedTuple

from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import ConfigError, nearest
from ..evaluation.assignment import RemotePolicy, ScriptedPolicy, TeamPolicy
from ..evaluation.request import Checkpoint
from ..models.bases.loading import load_adapter
from ..runs.run import RunReader
from ..setup.evaluation import TeamSource
from ..setup.team import load_base
from ..setup.trust import check_stored


class LoadedPolicy(NamedTuple):
    """A policy's weights on the CPU, float32, and its tokenizer with its chat template."""

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase


def policy_source(run: RunReader, name: str, checkpoint: Checkpoint) -> TeamPolicy:
    """The policy ``name`` of ``run`` at ``checkpoint``, not loaded.

    Raises :class:`~troupe.errors.ConfigError` for another name and for a checkpoint that is not there.
    """
    config = check_stored(run)
    team = config["team"]
    agents = [agent for agent, policy in team.items() if policy == name]
    if not agents:
        hint = f": agent '{name}' speaks with policy '{team[name]}'" if name in team else ""
        known = list(config["policies"])
        raise ConfigError(f"{run.path} has no policy '{name}'{hint or nearest(name, known)}")
    return TeamSource(config, run, None).policy("checkpoint", agents[0], checkpoint)


def load_policy(run: RunReader, name: str, checkpoint: Checkpoint, *, merged: bool) -> LoadedPolicy:
    """Raises as :func:`policy_source` does, where weights cannot be loaded, and for a policy without a model here."""
    source = policy_source(run, name, checkpoint)
    if isinstance(source, RemotePolicy):
        raise ConfigError(f"policy '{name}' of {run.path} is a model behind a server: its weights are not here")
    if isinstance(source, ScriptedPolicy):
        raise ConfigError(f"policy '{name}' of {run.path} is scripted: it has no weights")
    if source.base_model is None:
        return LoadedPolicy(*load_base(source.key, source.weights))
    model, tokenizer = load_base(source.key, source.base_model)
    adapted = load_adapter(model, source.weights)
    return LoadedPolicy(adapted.merge_and_unload() if merged else adapted, tokenizer)

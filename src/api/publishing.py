"""A trained team as a repository of the Hugging Face hub: its policies as transformers models, with tokenizers and a
model card.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError as TransportError  # type: ignore[attr-defined]  # the client's own
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # public, but not re-exported
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import ConfigError, PublishError, nearest
from ..evaluation.assignment import LocalPolicy, RemotePolicy, ScriptedPolicy, TeamPolicy
from ..evaluation.request import NAMED, Checkpoint
from ..models.bases.base_models import SHIPPED, resolve
from ..models.bases.loading import load_adapter
from ..models.bases.reading import ADAPTER
from ..reports.model_card import PublishedPolicy, model_card
from ..runs.callbacks import Callback, Training
from ..runs.run import RunReader
from ..setup.evaluation import TeamSource
from ..setup.instantiation import call
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
    return LoadedPolicy(adapted.merge_and_unload().requires_grad_(True) if merged else adapted, tokenizer)


log = logging.getLogger(__name__)

PUBLISHED = re.compile(
    r"(adapter_)?model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json|"
    r"((adapter|generation|tokenizer)_)?config\.json|tokenizer\.json|special_tokens_map\.json|added_tokens\.json|"
    r"vocab\.(json|txt)|merges\.txt|(tokenizer|spiece|sentencepiece\.bpe)\.model|chat_template\.jinja"
)
"""The files of a checkpoint that are uploaded: those that transformers and peft write."""
CODE = ("auto_map", "auto_mapping", "custom_pipelines")
"""Keys of such files that name code, which loaders with ``trust_remote_code`` run."""


def push_to_hub(
    run: RunReader,
    repo: str,
    checkpoint: Checkpoint | None = None,
    *,
    private: bool = False,
    license: str | None = None,
) -> str:
    """Upload :func:`write_hub_folder` of ``run`` to ``repo``, which is created where it does not exist; returns its
    address.

    The hub's key is that of ``hf auth login``, or ``HF_TOKEN``.  Raises as :func:`write_hub_folder` does, and
    :class:`PublishError` where the hub refuses or is not reached.
    """
    with TemporaryDirectory() as temporary:
        folder = write_hub_folder(run, Path(temporary, "repo"), repo, checkpoint, license)
        return upload(folder, repo, private=private)


class PushToHub(Callback):
    """Uploads the team at a run's end; the keys are those of ``troupe push-to-hub``."""

    def __init__(
        self, repo: str, checkpoint: Checkpoint | None = None, private: bool = False, license: str | None = None
    ) -> None:
        self.repo = call("callbacks.push_to_hub.repo", validate_repo_id, repo) or repo
        self.checkpoint, self.private, self.license = checkpoint, private, license

    def on_end(self, run: Training, summary: Mapping[str, Any]) -> None:
        reader = RunReader(run.directory.path)
        address = push_to_hub(reader, self.repo, self.checkpoint, private=self.private, license=self.license)
        log.info("callbacks.push_to_hub: %s", address)


def upload(folder: Path, repo: str, *, private: bool) -> str:
    """Upload ``folder`` to ``repo``; returns the repository's address.  Raises as :func:`push_to_hub` does."""
    api = HfApi()
    try:
        address = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload a team trained by Troupe")
    except (OSError, TransportError) as error:  # no key, refused, not reached
        raise PublishError(f"repo={repo} was not uploaded to {api.endpoint}: {error}") from error
    return str(address)


def write_hub_folder(
    run: RunReader, folder: Path, repo: str, checkpoint: Checkpoint | None = None, license: str | None = None
) -> Path:
    """Write the content of ``repo`` into ``folder``, which must be empty or new: README.md with the card, and one
    folder per policy, as ``from_pretrained(..., subfolder=POLICY)`` reads it.  A base model that an adapter needs, or a
    frozen policy is, and that is not on the hub, has a folder ``base``.  Nothing else of the run is there.

    Raises :class:`~troupe.errors.ConfigError` naming the key that is wrong, and
    :class:`~troupe.runs.files.RunDirectoryError` for a run that was not evaluated after training.
    """
    call("repo", validate_repo_id, repo)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"out={folder} is not an empty folder; choose another, nothing was changed")
    checkpoint = checkpoint or run.default_checkpoint
    if checkpoint not in NAMED:  # the card has no score of others
        raise ConfigError(f"checkpoint={checkpoint} is unknown{nearest(checkpoint, NAMED)}")
    sources = {name: policy_source(run, name, checkpoint) for name in run.config["policies"]}
    bases = dict(_base_folders(run, sources))
    policies = [_published(run, name, source, bases) for name, source in sources.items()]
    card = model_card(run, repo, checkpoint, policies, license)
    folder.mkdir(parents=True, exist_ok=True)
    for base, subfolder in bases.items():
        model, tokenizer = load_base("policies.*.base", base)
        model.save_pretrained(folder / subfolder)
        tokenizer.save_pretrained(folder / subfolder)
        _drop_code(folder / subfolder)
    for policy, source in zip(policies, sources.values(), strict=True):
        if policy.folder is not None and isinstance(source, LocalPolicy):
            _copy(Path(source.weights), folder / policy.folder, policy.base or repo)
    card.save(folder / "README.md")
    return folder


def _base_folders(run: RunReader, sources: Mapping[str, TeamPolicy]) -> Iterator[tuple[str, str]]:
    """(Base model, its folder in the repository) for those that are needed and not on the hub."""
    needed = [
        run.config["policies"][name]["base"]
        for name, source in sources.items()
        if isinstance(source, LocalPolicy) and (source.base_model is not None or not _is_own(run, name, source))
    ]
    local = [base for base in dict.fromkeys(needed) if Path(resolve(base)).is_dir()]
    taken = set(sources)
    for number, base in enumerate(local, 1):
        name = "base" if len(local) == 1 else f"base_{number}"
        while name in taken:
            name += "_model"
        taken.add(name)
        yield base, name


def _is_own(run: RunReader, name: str, source: LocalPolicy) -> bool:
    """Whether the policy has weights of its own: a checkpoint's, not those of its base model."""
    return source.weights != run.config["policies"][name]["base"]


def _published(run: RunReader, name: str, source: TeamPolicy, bases: Mapping[str, str]) -> PublishedPolicy:
    agents = [agent for agent, policy in run.config["team"].items() if policy == name]
    if isinstance(source, RemotePolicy):
        return PublishedPolicy(name, agents, "remote", "behind a server")
    if isinstance(source, ScriptedPolicy):
        return PublishedPolicy(name, agents, "scripted", f"the world's demonstrator ({source.skill})")
    node = run.config["policies"][name]
    base, own = node["base"], _is_own(run, name, source)
    tuning = node.get("tuning", "full") if own else "frozen"
    on_hub = None if Path(resolve(base)).is_dir() else base
    label = f"`{base}` of Troupe" if base in SHIPPED else f"`{on_hub}`" if on_hub else "a local model"
    return PublishedPolicy(name, agents, tuning, label, name if own else None, on_hub, bases.get(base))


def _copy(weights: Path, folder: Path, base: str) -> None:
    """Copy the weights and the tokenizer of a policy of a checkpoint; ``base`` is what an adapter names as its base
    model."""
    folder.mkdir()
    for file in sorted(weights.iterdir()):
        if file.is_file() and PUBLISHED.fullmatch(file.name):  # whatever else lies there
            shutil.copyfile(file, folder / file.name)
    if (adapter := folder / ADAPTER).is_file():
        settings = json.loads(adapter.read_text())
        adapter.write_text(json.dumps({**settings, "base_model_name_or_path": base}, indent=2) + "\n")
    _drop_code(folder)


def _drop_code(folder: Path) -> None:
    """Leave :data:`CODE` out of the files in ``folder``."""
    for file in folder.glob("*config.json"):
        settings = json.loads(file.read_text())
        if not settings.keys().isdisjoint(CODE):
            plain = {name: value for name, value in settings.items() if name not in CODE}
            file.write_text(json.dumps(plain, indent=2) + "\n")

"""A run directory with its policies: what notebooks call ``troupe.Run``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ..evaluation.request import Checkpoint
from ..runs.index import find_runs
from ..runs.run import RunReader
from .policies import LoadedPolicy, load_policy
from .publishing import push_to_hub, write_hub_folder


class Run(RunReader):
    """A :class:`troupe.runs.run.RunReader` that also finds runs, loads policies and publishes::

    run = Run("runs/sokoban_lora/2026-11-21_15-46-09-0")
    model, tokenizer = run.policy("tool")
    run.push_to_hub("me/sokoban-team")
    """

    @classmethod
    def find(cls, folder: str | Path = "runs") -> Iterator[Self]:
        """Every run below ``folder``, in the order of their paths; none where there is no such folder."""
        return (cls(each.path) for each in find_runs(Path(folder)))

    @property
    def policies(self) -> list[str]:
        """The names of the policies; ``config["team"]`` maps agents to them."""
        return list(self.config["policies"])

    def policy(self, name: str, checkpoint: Checkpoint | None = None, *, merged: bool = False) -> LoadedPolicy:
        """Model and tokenizer of the policy ``name`` at ``checkpoint``: ``best``, ``last``, or ``base`` (before any
        training); None is :attr:`default_checkpoint`.

        An adapter is a peft model on its base, or where ``merged`` the base with the adapter merged in.  Raises
        :class:`~troupe.errors.ConfigError` for another name, a checkpoint that is not there, weights that cannot be
        loaded, and a policy behind a server.
        """
        return load_policy(self, name, checkpoint or self.default_checkpoint, merged=merged)

    def write_hub_folder(self, folder: str | Path, repo: str, checkpoint: Checkpoint | None = None) -> Path:
        """Write what :meth:`push_to_hub` uploads, and upload nothing; see :func:`.publishing.write_hub_folder`."""
        return write_hub_folder(self, Path(folder), repo, checkpoint)

    def push_to_hub(self, repo: str, checkpoint: Checkpoint | None = None, *, private: bool = False) -> str:
        """Upload weights, tokenizers and a model card to ``repo`` (``OWNER/NAME``) of the Hugging Face hub; returns its
        address.  See :func:`.publishing.push_to_hub`."""
        return push_to_hub(self, repo, checkpoint, private=private)

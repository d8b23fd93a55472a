"""A run directory with its policies: what notebooks call ``troupe.Run``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import AbsentError
from ..evaluation.request import Checkpoint
from ..rollout.chat_template import prefill
from ..runs.index import find_runs
from ..runs.run import RunReader
from ..runs.tables import (
    CANDIDATE,
    MESSAGE,
    TREE,
    LogTable,
    candidate_table,
    data_frame,
    episode_table,
    html_table,
    tree_table,
)
from .publishing import LoadedPolicy, load_policy, push_to_hub, write_hub_folder

if TYPE_CHECKING:
    from datasets import Dataset
    from pandas import DataFrame


class Run(RunReader):
    """A :class:`troupe.runs.run.RunReader` that also finds runs, loads policies and publishes::

    run = Run("runs/sokoban_lora/2026-11-21_15-46-09-0")
    model, tokenizer = run.policy("tool")
    run.candidates.groupby("agent")["advantage"].std()
    run.push_to_hub("me/sokoban-team")
    """

    def _repr_html_(self) -> str:
        """How it stands, for a notebook: its state, iterations, and success on the test tasks."""
        rows = {
            "state": self.state,
            "iterations": f"{len(self.rows)} of {self.config.get('loop', {}).get('iterations', '?')}",
        }
        for key, name in (("eval_before", "before training"), ("eval", "trained"), ("eval_best", "best on validation")):
            if isinstance(success := self.summary.get(f"{key}/success"), int | float):
                low, high = self.summary.get(f"{key}/success_ci95") or (None, None)
                rows[name] = f"{success:.1%}" + ("" if low is None else f" ({low:.1%} to {high:.1%})")
        return html_table((), list(rows.items()), str(self.path))

    @property
    def messages(self) -> DataFrame:
        """One row per message of the run's evaluations; ``evaluation`` is ``test_00000``, ``validation_00010``, ...

        Raises :class:`~troupe.errors.AbsentError` where pandas is not installed.
        """
        tables = ((name, episode_table(name, file.episodes)) for name, file in self.episode_files.items())
        return _frame("messages", "evaluation", MESSAGE, tables)

    @property
    def trees(self) -> DataFrame:
        """One row per training tree that was kept, see :func:`.tree_table`; ``iteration`` counts the iterations before
        it.  :meth:`tree_records` has the nested data.  Raises as :attr:`messages` does.
        """
        tables = ((i, tree_table(file.trees)) for i, file in self.tree_files.items())
        return _frame("trees", "iteration", TREE, tables)

    @property
    def candidates(self) -> DataFrame:
        """One row per candidate of the training trees that were kept, with its prompt, rewards and advantage;
        ``iteration`` counts the iterations before it.  Raises as :attr:`messages` does.
        """
        tables = ((i, candidate_table(file.trees)) for i, file in self.tree_files.items())
        frame = _frame("candidates", "iteration", CANDIDATE, tables)
        for agent, policy in self.config["team"].items():  # what was given stands in the prompt
            begin = prefill(self.config["policies"][policy].get("chat") or {})
            own = frame["agent"] == agent
            frame.loc[own, "text"] = frame.loc[own, "text"].str.removeprefix(begin)
        return frame

    def to_dataset(self) -> Dataset:
        """:attr:`candidates` as a set of ``datasets``: ``prompt`` is the text that the policy read, ``text`` what it
        wrote.  Raises :class:`~troupe.errors.AbsentError` where ``datasets`` or pandas is not installed.
        """
        try:
            from datasets import Dataset
        except ImportError as error:
            raise AbsentError("Run.to_dataset needs the package datasets: pip install 'troupe-rl[data]'") from error
        return Dataset.from_pandas(self.candidates, preserve_index=False)

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


def _frame(name: str, which: str, columns: Sequence[str], tables: Iterable[tuple[Any, LogTable]]) -> DataFrame:
    """The rows of all ``tables``, each after the value that says which table it was."""
    rows = [(value, *row) for value, table in tables for row in table.rows]
    return data_frame(f"Run.{name}", rows, (which, *columns))

"""Questions of several sources in disjoint splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, get_args

from ...experience import Split, Task
from ..rows import named
from .sources import Question, Source

_HELD_OUT: Final = ("test", "validation")


class Collection:
    """``train``, ``validation`` and ``test`` are the sources of each split; without sources for validation, a share
    ``validation_share`` of the training questions, chosen by their content, is kept from training.

    A question is known by its text, see :attr:`.sources.Question.key`: within a split it occurs once, and what test or
    validation asks, training does not.  What was left out is counted in ``counts``; a question that comes with two
    answers is left out altogether.

    Raises :class:`~troupe.envs.rows.DataError` for sources that are not what their cards say, and ``ValueError`` for a
    split without questions.
    """

    def __init__(
        self,
        name: str,
        *,
        train: Sequence[Source],
        test: Sequence[Source],
        validation: Sequence[Source] = (),
        validation_share: float = 0.02,
    ) -> None:
        if not 0 < validation_share < 1:
            raise ValueError(f"env.validation_share must be in (0, 1), got {validation_share}")
        self.name, self.counts = name, dict[str, int]()
        loaded: dict[str, dict[str, Question]] = {}
        for split, sources in (("train", train), ("validation", validation), ("test", test)):
            with named(f"env.{split}"):
                loaded[split] = self._once(split, [question for source in sources for question in source.load()])
        if not validation:
            kept = {key for key in loaded["train"] if int(key, 16) % 10_000 < 10_000 * validation_share}
            loaded["validation"] = {key: loaded["train"][key] for key in kept}
            loaded["train"] = {key: found for key, found in loaded["train"].items() if key not in kept}
        for held_out in _HELD_OUT:
            for split in get_args(Split)[: 2 if held_out == "test" else 1]:
                shared = loaded[split].keys() & loaded[held_out].keys()
                self.counts[f"{split}_also_in_{held_out}"] = len(shared)
                loaded[split] = {key: found for key, found in loaded[split].items() if key not in shared}
        self._keys = {split: sorted(found) for split, found in loaded.items()}
        self._found: Mapping[str, Mapping[str, Question]] = loaded
        for split, keys in self._keys.items():
            self.counts[split] = len(keys)
            if not keys:
                raise ValueError(f"env.{split}: no question is left; {self.counts}")

    def _once(self, split: str, questions: Sequence[Question]) -> dict[str, Question]:
        """Each question once, by its key."""
        found: dict[str, Question] = {}
        contested = set()
        for question in questions:
            first = found.setdefault(question.key, question)
            if first.answer != question.answer:
                contested.add(question.key)
        self.counts[f"{split}_repeated"] = len(questions) - len(found)
        self.counts[f"{split}_with_two_answers"] = len(contested)
        return {key: question for key, question in found.items() if key not in contested}

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        """``count`` different tasks of ``split``.  Raises ``ValueError`` where it does not hold that many."""
        if split not in get_args(Split):
            raise ValueError(f"{self.name} has the splits {', '.join(get_args(Split))}, not {split}")
        keys = self._keys[split]
        if count > len(keys):
            raise ValueError(f"{self.name}: found only {len(keys)} of {count} different {split} tasks")
        chosen = Random(f"{self.name}/{split}/{seed}").sample(keys, count)
        return [self._task(split, key) for key in chosen]

    def _task(self, split: Split, key: str) -> Task:
        question = self._found[split][key]
        data = {"question": question.text, "answer": question.answer, "several": question.several}
        return Task(f"{self.name}-{key}", split, data)

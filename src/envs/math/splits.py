"""Questions of several data sets in disjoint splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...experience import Split
from ..datasets import DataSplits, load_splits
from .sources import Question, QuestionSource


def load_questions(
    name: str, sources: Mapping[Split, Sequence[QuestionSource]], *, validation_share: float
) -> DataSplits[Question]:
    """The questions of ``sources``, as tasks of the world ``name``.

    Without sources for validation, a share ``validation_share`` of the training questions, decided by their content,
    is held out for it.

    Raises :class:`..datasets.table.DataError` for sources that are not as their cards say, and ``ValueError`` for a
    split without questions, unless neither it nor training has data sets.
    """
    if not 0 < validation_share < 1:
        raise ValueError(f"env.validation_share must be in (0, 1), got {validation_share}")

    def split_of(key: str) -> Split:
        return "validation" if int(key, 16) % 10_000 < 10_000 * validation_share else "train"

    splits = load_splits(name, sources, split_of)
    for split, questions in splits.items.items():
        if not questions and (sources[split] or sources["train"]):
            raise ValueError(f"env.{split}: no question is left; {dict(splits.counts)}")
        splits.items[split] = dict(sorted(questions.items()))  # a draw does not depend on the order of the files
    return splits

"""Items of several data sets as tasks in disjoint splits."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, get_args

from ...experience import Split, Task
from ..checks import check_split
from .source import ItemSource, ItemT
from .table import DataError

_HELD_OUT: Final[tuple[tuple[Split, tuple[Split, ...]], ...]] = (
    ("test", ("train", "validation")),
    ("validation", ("train",)),
)
"""A held-out split, and the splits that may not share an item with it."""

_log = logging.getLogger(__name__)


@dataclass
class DataSplits(Generic[ItemT]):
    """The items of each split by their key, and ``counts`` of the items and of all that was left out.

    ``name`` is the world's; with an item's key it makes the task's id.
    """

    name: str
    items: dict[Split, dict[str, ItemT]]
    counts: Counter[str]

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        """``count`` different tasks of ``split``.  Raises ``ValueError`` where there are fewer."""
        check_split(self.name, split)
        items = self.items[split]
        if count > len(items):
            raise ValueError(f"{self.name}: found only {len(items)} of {count} different {split} tasks")
        keys = Random(f"{self.name}/{split}/{seed}").sample(list(items), count)
        return [Task(f"{self.name}-{key}", split, items[key].task_data) for key in keys]


def load_splits(
    name: str,
    sources: Mapping[Split, Sequence[ItemSource[ItemT]]],
    split_of: Callable[[str], Split],
    *,
    config_key: str = "env",
) -> DataSplits[ItemT]:
    """Read ``sources``; each item occurs once, in one split.

    ``split_of`` maps the key of a training item to a split; it moves there if that split has no sources of its own.  An
    item that is in several splits stays in test, else in validation.  Items of one key that contradict each other are
    left out of their split; the test split keeps items of one key that differ.

    Raises :class:`.table.DataError`, which begins with ``CONFIG_KEY.SPLIT``.
    """
    counts: Counter[str] = Counter()
    items = {split: _read(f"{config_key}.{split}", split, sources[split], counts) for split in get_args(Split)}
    for key in list(items["train"]):
        split = split_of(key)
        if split != "train" and not sources[split]:
            items[split][key] = items["train"].pop(key)
    for held_out, others in _HELD_OUT:
        for split in others:
            shared = items[split].keys() & items[held_out].keys()
            counts[f"{split}_also_in_{held_out}"] = len(shared)
            items[split] = {key: item for key, item in items[split].items() if key not in shared}
    counts.update({split: len(part) for split, part in items.items()})
    _log.info("%s: %s", name, ", ".join(f"{key} {count}" for key, count in sorted(counts.items())))
    return DataSplits(name, items, counts)


def _read(
    config_key: str, split: Split, sources: Sequence[ItemSource[ItemT]], counts: Counter[str]
) -> dict[str, ItemT]:
    """The items of one split's sources by their key, the first of each key; of the test split all that differ."""
    total, left_out = 0, Counter[str]()
    items: dict[str, ItemT] = {}
    contradictory = set()
    try:
        for source in sources:
            for item in source.items(left_out):
                total += 1
                known = items.setdefault(item.key, item)
                if known.contradicts(item):
                    contradictory.add(item.key)
                elif split == "test" and known != item:  # HumanEval has two problems that differ in < and ( alone
                    items[f"{item.key}-{total}"] = item
    except DataError as error:
        raise type(error)(f"{config_key}: {error}") from error
    if sources and not total:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in left_out.items()) or "there are none"
        raise DataError(f"{config_key}: no row is a task: {reasons}")
    counts.update(left_out)
    counts[f"{split}_repeated"] = total - len(items)
    counts[f"{split}_with_two_answers"] = len(contradictory)
    return {key: item for key, item in items.items() if key not in contradictory}

"""Items of several data sets as tasks in disjoint splits, and what each family of worlds writes for itself: from a row
of a data set to an item.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar, get_args

from ...experience import Split, Task
from ..setting_checks import check_split
from .table import Columns, DataError, Table


class UnusableRow(ValueError):
    """A row from which no task can be made; the message says why.  It is left out, and counted."""


class CellError(ValueError):
    """A cell that is not as the data set's card says."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column}: {problem}")


def paired(cell: Mapping[str, Any], first: str, second: str) -> list[tuple[Any, Any]] | None:
    """The pairs of two lists of one length, which a cell has under these keys; None where it has not."""
    match cell.get(first), cell.get(second):
        case list() as one, list() as other if len(one) == len(other):
            return list(zip(one, other, strict=True))
    return None


class Item(Protocol):
    """A problem or question of a data set."""

    @property
    def key(self) -> str:
        """A hexadecimal digest of the content: items of one key are the same item."""

    @property
    def task_data(self) -> Mapping[str, Any]:
        """The ``data`` of its task."""

    def contradicts(self, other: Any) -> bool:
        """Whether two items of one key have different answers, so that neither can be trusted."""


ItemT = TypeVar("ItemT", bound=Item)


class ItemSource(ABC, Generic[ItemT]):
    """Where items come from: a table, or a program that makes them."""

    @abstractmethod
    def items(self, counts: Counter[str]) -> Iterator[ItemT]:
        """The items, in their order; what is left out is counted in ``counts``."""


class DataSource(ItemSource[ItemT]):
    """The items of one table, of which ``columns`` are read.  A subclass makes the item of a row."""

    def __init__(self, table: Table, columns: Columns) -> None:
        self.table, self.columns = table, columns

    @abstractmethod
    def item(self, row: Mapping[str, Any]) -> ItemT:
        """The item of ``row``.  Raises :class:`UnusableRow` and :class:`CellError`."""

    def items(self, counts: Counter[str]) -> Iterator[ItemT]:
        """The items of all rows, in their order; rows that are left out are counted in ``counts``.

        Raises :class:`DataError`, with the file, the row and the column.
        """
        for index, row in enumerate(self.table.rows(self.columns)):
            try:
                item = self.item(row)
            except UnusableRow as reason:
                counts[f"rows left out: {reason}"] += 1
                continue
            except CellError as error:
                raise DataError(f"{self.table.path}, row {index}, {error}") from error
            yield item


class PublishedSource(DataSource[ItemT]):
    """A data set with a name on the hub, and the columns of its card.

    ``path`` is a local file (.json, .jsonl, .parquet, .csv) or a name on the hub; ``split``, ``config`` and
    ``revision`` are those of :class:`.table.Table`.
    """

    hub: str
    """Its name on the hub."""
    config: str | None = None
    split = "train"
    cells: ClassVar[Columns]
    """The columns that are read, with the types of their cells."""

    def __init__(
        self,
        path: str | None = None,
        *,
        split: str | None = None,
        config: str | None = None,
        revision: str | None = None,
    ) -> None:
        super().__init__(Table(path or self.hub, split or self.split, config or self.config, revision), self.cells)


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
    if not isinstance(sources, Sequence) or not all(isinstance(source, ItemSource) for source in sources):
        raise DataError(f"{config_key} must be a list of data sets, got {sources!r}")
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

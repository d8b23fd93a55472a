"""From a row of a data set to an item: the part that every family of worlds writes for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from .table import Columns, DataError, Table


class UnusableRow(ValueError):
    """A row from which no task can be made; the message says why.  It is left out, and counted."""


class CellError(ValueError):
    """A cell that is not as the data set's card says."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column}: {problem}")


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

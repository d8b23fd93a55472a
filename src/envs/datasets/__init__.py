"""Data sets as tasks: rows of files and hub names, each once, in disjoint splits."""

from .splits import (
    CellError,
    DataSource,
    DataSplits,
    Item,
    ItemSource,
    PublishedSource,
    UnusableRow,
    load_splits,
    paired,
)
from .table import AbsentDataError, Columns, DataError, Table, without_downloads

__all__ = [
    "AbsentDataError",
    "CellError",
    "Columns",
    "DataError",
    "DataSource",
    "DataSplits",
    "Item",
    "ItemSource",
    "PublishedSource",
    "Table",
    "UnusableRow",
    "load_splits",
    "paired",
    "without_downloads",
]

"""Data sets as tasks: rows of files and hub names, each once, in disjoint splits."""

from .source import CellError, DataSource, Item, ItemSource, PublishedSource, UnusableRow
from .splits import DataSplits, load_splits
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
    "without_downloads",
]

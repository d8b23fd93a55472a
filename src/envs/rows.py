"""Rows of data sets: local files and the hub's by one way, with the columns that are asked for, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import AbsentError

Columns = Mapping[str, type | tuple[type, ...]]
"""Column -> the Python types that its cells may have."""

_FORMATS: Final = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}


_FETCHES: ContextVar[bool] = ContextVar("fetches", default=True)


class DataError(ValueError):
    """A data set is not what was expected; the message names the file, the row and the column."""


class AbsentDataError(DataError, AbsentError):
    """A data set that is not on this machine, or that it cannot read."""


@contextmanager
def nothing_fetched() -> Iterator[None]:
    """Within, tables of the hub and behind URLs are not looked at, but raise :class:`AbsentDataError`."""
    token = _FETCHES.set(False)
    try:
        yield
    finally:
        _FETCHES.reset(token)


@contextmanager
def named(key: str) -> Iterator[None]:
    """A :class:`DataError` within says by which ``key`` of the configuration the data was asked for."""
    try:
        yield
    except DataError as error:
        raise type(error)(f"{key}: {error}") from error


@dataclass(frozen=True)
class Table:
    """Where rows come from.

    ``path`` is a file (.json, .jsonl, .parquet, .csv, also .gz of the first two), here or behind a URL (hf://...), or a
    name on the hub; ``config``, ``split`` and ``revision`` are for such a name.
    """

    path: str
    split: str = "train"
    config: str | None = None
    revision: str | None = None

    @property
    def _format(self) -> str | None:
        suffixes = [suffix for suffix in Path(self.path).suffixes if suffix != ".gz"]
        return _FORMATS.get(suffixes[-1]) if suffixes else None

    def load(self) -> Any:
        """The table as a ``datasets.Dataset``.

        Raises :class:`DataError` for a file that is not there or cannot be read, and where ``datasets`` is missing.
        """
        if not _FETCHES.get() and (self._format is None or "://" in self.path):
            raise AbsentDataError(f"{self.path} would be fetched, and was not checked")
        try:
            import datasets
        except ImportError as error:
            raise AbsentDataError(f"{self.path}: reading it needs `datasets`: pip install 'troupe[data]'") from error
        if self._format is None:
            return self._from_hub(datasets)
        file = self.path if "://" in self.path else str(Path(self.path).expanduser())
        if "://" not in file and not Path(file).is_file():
            raise DataError(f"{self.path}: no such file")
        try:
            return datasets.load_dataset(self._format, data_files=file, split="train")
        except datasets.exceptions.DatasetGenerationError as error:
            raise DataError(f"{self.path} cannot be read as {self._format}: {error.__cause__ or error}") from error

    def _from_hub(self, datasets: Any) -> Any:
        try:
            return datasets.load_dataset(self.path, self.config, split=self.split, revision=self.revision)
        except (OSError, ValueError) as error:  # not reached, not there, or no such configuration or split
            raise DataError(
                f"{self.path} cannot be loaded from the hub: {error}. Give a local file of the same columns in its "
                "place, or set HF_HOME to a folder whose cache holds it"
            ) from error


def rows(table: Table, columns: Columns) -> Iterator[dict[str, Any]]:
    """The rows of ``table``, of their columns those of ``columns``.

    Raises :class:`DataError` where a column is missing, or a cell has another type, with its name and row (from 0).
    """
    loaded = table.load()
    if missing := [name for name in columns if name not in loaded.column_names]:
        found = ", ".join(loaded.column_names)
        raise DataError(f"{table.path} has no column {', '.join(missing)}; it has {found}")
    for index, row in enumerate(loaded.select_columns(list(columns))):
        for name, kinds in columns.items():
            if not isinstance(row[name], kinds):
                found = type(row[name]).__name__
                raise DataError(f"{table.path}, row {index}, column {name}: expected {_either(kinds)}, got {found}")
        yield row


def _either(kinds: type | tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))

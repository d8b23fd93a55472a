"""Rows of a file, of a URL or of a data set on the hub: columns are checked, and no file is larger than
:data:`MOST_BYTES`, whatever a server says of its size.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from ...errors import AbsentError
from ...guards.bounds import check_bounds

Columns = Mapping[str, type | tuple[type, ...]]
"""Column -> the Python types that its cells may have."""

_FORMATS: Final = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}
_DOWNLOADS: ContextVar[bool] = ContextVar("downloads", default=True)


class DataError(ValueError):
    """A data set is not as expected; the message names the key, the file, the row and the column."""


class AbsentDataError(DataError, AbsentError):
    """A data set that is not on this machine, or that it cannot read."""


@contextmanager
def without_downloads() -> Iterator[None]:
    """Within, tables of the hub and behind URLs are not read, but raise :class:`AbsentDataError`."""
    token = _DOWNLOADS.set(False)
    try:
        yield
    finally:
        _DOWNLOADS.reset(token)


@dataclass(frozen=True)
class Table:
    """The place of the rows.

    ``path`` is a file (.json, .jsonl, .parquet, .csv, also .gz of the first two), here or behind a URL (hf://...), or a
    name on the hub; ``config`` and ``revision`` are for such a name.  A file is the whole split whatever its name is in
    ``split``, of which slices are taken from either: ``test[33:163]``, ``train[:10%]+train[90%:]``.
    """

    path: str
    split: str = "train"
    config: str | None = None
    revision: str | None = None

    def rows(self, columns: Columns) -> Iterator[dict[str, Any]]:
        """The rows, with ``columns`` only.

        Raises :class:`DataError` where a column is missing, and, with the number of the row (from 0) and the column,
        where a cell has another type.
        """
        table = self.load()
        if missing := [name for name in columns if name not in table.column_names]:
            raise DataError(
                f"{self.path} has no column {', '.join(missing)}; its columns are {', '.join(table.column_names)}"
            )
        rows = iter(table.select_columns(list(columns)))
        for index in range(len(table)):
            try:
                row = next(rows)
            except ValueError as error:  # text in another encoding
                raise DataError(f"{self.path}, row {index}: {error}") from error
            for name, types in columns.items():
                if not _is_one(row[name], types):
                    actual = type(row[name]).__name__
                    raise DataError(f"{self.path}, row {index}, column {name}: expected {_either(types)}, got {actual}")
            yield row

    def load(self) -> Any:
        """The table as a ``datasets.Dataset``.

        Raises :class:`DataError` for a file that is not there, cannot be read, is too large to be fetched
        (:func:`fetched`) or unfolds too far (:mod:`...guards.bounds`), and where ``datasets`` is missing.
        """
        if not self.path:
            raise DataError("a data set needs a path or a name on the hub")
        if not _DOWNLOADS.get() and (self._format is None or "://" in self.path):
            raise AbsentDataError(f"{self.path} would be fetched, and was not checked")
        try:
            import datasets
        except ImportError as error:
            raise AbsentDataError(f"{self.path}: reading it needs `datasets`: pip install 'troupe-rl[data]'") from error
        if self._format is None:
            return self._from_hub(datasets)
        file = self._fetched(datasets) if "://" in self.path else Path(self.path).expanduser()
        if not file.is_file():
            raise DataError(f"{self.path}: no such file")
        if not file.stat().st_size:
            raise DataError(f"{self.path} is empty")
        try:
            check_bounds(file)
        except ValueError as error:
            raise DataError(f"{self.path} cannot be read as {self._format}: {error}") from error
        try:
            # Else the name is a pattern, and may be that of another file.
            table = datasets.load_dataset(self._format, data_files=glob.escape(str(file)), split="train")
        except OSError as error:
            cache = f"`datasets` keeps tables in {datasets.config.HF_DATASETS_CACHE}; HF_HOME names another folder"
            raise DataError(f"{self.path} cannot be read as {self._format}: {error}. {cache}") from error
        # pyarrow's errors are ValueErrors; of a file without rows `datasets` raises StopIteration or a ValueError.
        except (datasets.exceptions.DatasetGenerationError, ValueError, StopIteration) as error:
            no_rows = isinstance(error, StopIteration) or "corresponds to no data" in str(error)
            reason = "it has no rows" if no_rows else str(error.__cause__ or error).strip()
            raise DataError(f"{self.path} cannot be read as {self._format}: {reason}") from error
        return self._sliced(datasets, table)

    def _sliced(self, datasets: Any, table: Any) -> Any:
        """The rows of the file that ``split`` names: all of them, or slices such as ``test[10:50%]``."""
        if re.fullmatch(r"[\w.+-]*", self.split):
            return table
        names = dict.fromkeys(re.findall(r"(?:^|\+)\s*([\w.]+)", self.split), len(table))
        if len(names) > 1:
            raise DataError(f"split={self.split}: {self.path} is one file; give slices of one name, not of several")
        try:
            parts = datasets.ReadInstruction.from_spec(self.split).to_absolute(names)
        except (ValueError, AssertionError) as error:
            raise DataError(f"split={self.split}: {error}") from error
        rows = [row for part in parts for row in range(part.from_, part.to)]
        if not rows:
            raise DataError(f"split={self.split}: {self.path} has no such rows, but {len(table)}")
        return table.select(rows)

    @property
    def _format(self) -> str | None:
        suffixes = [suffix for suffix in Path(self.path).suffixes if suffix != ".gz"]
        return _FORMATS.get(suffixes[-1]) if suffixes else None

    def _fetched(self, datasets: Any) -> Path:
        suffix = "".join(part for part in Path(self.path).suffixes if part in (*_FORMATS, ".gz"))
        try:
            return fetched(self.path, suffix, Path(datasets.config.HF_DATASETS_CACHE) / "troupe")
        except (OSError, ValueError, ImportError) as error:  # s3:// needs a library of its own
            raise DataError(f"{self.path} cannot be fetched: {error}") from error

    def _from_hub(self, datasets: Any) -> Any:
        try:
            builder = datasets.load_dataset_builder(self.path, self.config, revision=self.revision)
            if not Path(builder.cache_dir).is_dir():  # else its files were read, and are not needed any more
                urls = [str(url) for urls in (builder.config.data_files or {}).values() for url in urls]
                check_data_files(urls)
                for file in datasets.DownloadManager().download(urls):
                    check_bounds(Path(file))
            return datasets.load_dataset(self.path, self.config, split=self.split, revision=self.revision)
        # Not reached, not there, no such configuration or split, or files that cannot be read.
        except (datasets.exceptions.DatasetGenerationError, OSError, ValueError, StopIteration) as error:
            if Path(self.path).exists():
                what = "cannot be read"
                if isinstance(error, FileNotFoundError):
                    what = f"is neither a file of {', '.join(_FORMATS)} nor a folder of such files"
                reason = "it has no rows" if isinstance(error, StopIteration) else error.__cause__ or error
                raise DataError(f"{self.path} {what}: {reason}") from error
            raise DataError(
                f"{self.path} cannot be loaded from the hub: {error}. Give a local file of the same columns in its "
                "place, or set HF_HOME to a folder whose cache holds it"
            ) from error


def _is_one(cell: object, types: type | tuple[type, ...]) -> bool:
    """Whether a cell is of one of ``types``; a truth value is no number."""
    allowed = types if isinstance(types, tuple) else (types,)
    return isinstance(cell, allowed) and (bool in allowed or not isinstance(cell, bool))


def _either(types: type | tuple[type, ...]) -> str:
    return " or ".join(one.__name__ for one in (types if isinstance(types, tuple) else (types,)))


MOST_BYTES: Final = 1 << 34
"""Of one file, and of all files of a data set on the hub."""
REMEDY: Final = "fetch it yourself, and give the local file"
_CHUNK: Final = 1 << 20


def fetched(url: str, suffix: str, folder: Path) -> Path:
    """The file at ``url`` in ``folder``, where it stays for later runs; its name ends with ``suffix``.

    Where the server says the size, a larger file is refused before it is fetched; else, or where the server sends more,
    while it is read, and nothing stays of it.  Raises ``ValueError`` for that, and ``OSError`` where it cannot be read.
    """
    from aiohttp import ClientError
    from fsspec.core import url_to_fs

    try:
        system, path = url_to_fs(url)
        file = folder / (sha256(f"{url} {system.ukey(path)}".encode()).hexdigest()[:40] + suffix)
        if not file.is_file():
            _check_size(system.size(path) or 0)
            folder.mkdir(parents=True, exist_ok=True)
            _copy(system, path, file)
    except ClientError as error:  # which is not always an OSError
        raise OSError(str(error)) from error
    return file


def _copy(system: Any, path: str, file: Path) -> None:
    """Whole or not at all."""
    part, size = file.with_name(f"{file.name}.{os.getpid()}"), 0
    try:
        with system.open(path, "rb") as source, part.open("wb") as target:
            while chunk := source.read(_CHUNK):
                _check_size(size := size + len(chunk))
                target.write(chunk)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def check_data_files(urls: Iterable[str]) -> None:
    """Raise ``ValueError`` where the data files of a data set are together too large, before any is fetched."""
    from fsspec.core import url_to_fs

    _check_size(sum(system.size(path) or 0 for system, path in map(url_to_fs, urls)))


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes; {REMEDY}")

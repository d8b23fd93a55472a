"""Files of rows that would unfold to far more than they hold: refused before anything is written or held of them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Final

from .trial import refusal

ALWAYS: Final = 1 << 30
"""Bytes that a compressed file may always unfold to."""
FACTOR: Final = 50
"""Above, it may unfold to so many times its size: text of rows rarely reaches 20, a file made to harm 1,000."""
MOST_ROWS: Final = 100_000_000
"""Of a parquet file, in which a repeated value takes no room."""
CELL: Final = 8
"""Bytes that a table needs for a value, one that is missing too."""
_TRIAL_MEMORY: Final = 4 << 30
"""Bytes of address space in which a parquet file is tried."""

_COMPRESSED: Final = {
    b"PK\x03\x04": "a zip archive",
    b"\xfd7zXZ\x00": "compressed with xz",
    b"BZh": "compressed with bzip2",
    b"(\xb5/\xfd": "compressed with zstd",
    b"\x04\x22\x4d\x18": "compressed with lz4",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
}
"""By their first bytes, whatever their name: ``datasets`` would unpack them, without a limit."""


def check_bounds(file: Path) -> None:
    """Raise ``ValueError`` for a ``file`` with another compression than its name says, or that unfolds too far: by its
    compression, or because few of its rows have the columns of the others, which a table has in each row.
    """
    with file.open("rb") as opened:
        head = opened.read(512)
    kind = next((kind for magic, kind in _COMPRESSED.items() if head.startswith(magic)), None)
    if head[257:262] == b"ustar":
        kind = "a tar archive"
    if head.startswith(b"\x1f\x8b") and file.suffix != ".gz":
        kind = "compressed with gzip, without .gz in its name"
    if kind is not None:
        raise ValueError(f"it is {kind}; unpack it first")
    limit = max(ALWAYS, FACTOR * file.stat().st_size)
    if file.suffix == ".parquet":
        _check_parquet(file, limit)
        return
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as unpacked:
                _check_size(unpacked, limit)
        check = _CHECKS.get(Path(file.name.removesuffix(".gz")).suffix)
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as rows:
            if check is not None:
                check(rows, limit)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(str(error)) from error


def _check_size(unpacked: BufferedIOBase, limit: int) -> None:
    size = 0
    while chunk := unpacked.read(1 << 20):
        size += len(chunk)
        if size > limit:
            raise ValueError(f"it unfolds to more than {limit >> 20} MiB, {FACTOR} times its size")


def _check_csv(rows: BufferedIOBase, limit: int) -> None:
    columns, count = rows.readline().count(b",") + 1, 0
    while chunk := rows.read(1 << 20):
        count += chunk.count(b"\n")
        _check_cells(columns, count, limit)


def _check_json(rows: BufferedIOBase, limit: int) -> None:
    """Rows in lines, or one document.  Nothing of them is kept but the names of keys."""
    keys: set[str] = set()
    objects = good_lines = 0

    def note(pairs: list[tuple[str, object]]) -> None:
        nonlocal objects
        objects += 1
        keys.update(key for key, _ in pairs)

    def count(text: bytes) -> None:
        decoder = json.JSONDecoder(object_pairs_hook=note, parse_int=len, parse_float=len, strict=False)
        try:
            decoder.decode(text.decode("utf-8-sig", "replace"))
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error
        _check_cells(len(keys), objects, limit)

    for number, line in enumerate(rows, 1):
        if not line.strip():
            continue
        try:
            count(line)
            good_lines += 1
        except json.JSONDecodeError as error:
            if good_lines:
                raise ValueError(f"line {number} is no JSON: {error}") from error
            count(line + rows.read())  # a document of several lines


def _check_cells(columns: int, rows: int, limit: int) -> None:
    if columns * rows * CELL > limit:
        raise ValueError(
            f"its {rows} rows or objects have {columns} different keys: as a table, more than {limit >> 20} MiB"
        )


_CHECKS: Final[Mapping[str, Callable[[BufferedIOBase, int], None]]] = {
    ".csv": _check_csv,
    ".json": _check_json,
    ".jsonl": _check_json,
}


def _check_parquet(file: Path, limit: int) -> None:
    asked = {"path": str(file), "most_bytes": limit, "most_rows": MOST_ROWS}
    if reason := refusal("parquet", asked, memory=_TRIAL_MEMORY):
        raise ValueError(reason)

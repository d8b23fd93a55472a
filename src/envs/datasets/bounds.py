"""Files of rows that would unfold to far more than they hold: refused before anything is written or held of them."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Final

ALWAYS: Final = 1 << 30
"""Bytes that a compressed file may always unfold to."""
FACTOR: Final = 50
"""Above, it may unfold to so many times its size: text of rows rarely reaches 20, a file made to harm 1,000."""
MOST_ROWS: Final = 100_000_000
"""Of a parquet file, in which a repeated value takes no room."""

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
    """Raise ``ValueError`` for a ``file`` with another compression than its name says, or that unfolds too far."""
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
    if file.suffix == ".gz":
        _check_gzip(file, limit)
    elif file.suffix == ".parquet":
        _check_parquet(file, limit)


def _check_gzip(file: Path, limit: int) -> None:
    size = 0
    try:
        with gzip.open(file) as opened:
            while chunk := opened.read(1 << 20):
                size += len(chunk)
                if size > limit:
                    raise ValueError(f"it unfolds to more than {limit >> 20} MiB, {FACTOR} times its size")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(str(error)) from error


def _check_parquet(file: Path, limit: int) -> None:
    from pyarrow.parquet import read_metadata  # comes with `datasets`

    footer = read_metadata(file)
    size = sum(footer.row_group(index).total_byte_size for index in range(footer.num_row_groups))
    if size > limit or footer.num_rows > MOST_ROWS:
        most = f"{limit >> 20} MiB and {MOST_ROWS} rows"
        raise ValueError(f"it unfolds to {size >> 20} MiB and {footer.num_rows} rows, of at most {most}")

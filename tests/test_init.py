"""``import troupe``: the names that it offers, and what it imports."""

import subprocess
import sys
from importlib.metadata import version

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

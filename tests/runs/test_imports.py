"""The modules that something is made of are read off its imports."""

from pathlib import Path

import pytest

from troupe.runs.imports import imported_files, imported_names

FILES = {
    "__init__.py": '"""A package."""\n',
    "loop.py": "from .worlds import Far\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n from .cli import main\n",
    "cli.py": "main = 1\n",
    "worlds/__init__.py": '"""Worlds."""\nfrom .near import Near\nfrom .far import Far\n__all__ = ["Far", "Near"]\n',
    "worlds/near.py": "class Near: ...\n",
    "worlds/far.py": "def far():\n    from troupe.tools import measure\n",
    "tools/__init__.py": "from .deep import deep\nmeasure = deep\n",
    "tools/deep.py": "import troupe.shown\ndeep = 1\n",
    "shown.py": "from . import loop\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imports_are_followed_but_not_to_neighbours_that_a_package_hands_on(package: Path) -> None:
    files = imported_files(package, ["loop"])
    assert set(files) == set(FILES) - {"cli.py", "worlds/near.py"}
    assert files["worlds/far.py"] == package / "worlds" / "far.py"
    assert "worlds/near.py" in imported_files(package, ["worlds.Near"])
    assert set(imported_files(package, ["worlds.near.Near"])) == {"__init__.py", "worlds/__init__.py", "worlds/near.py"}


def test_what_is_left_out_is_not_followed(package: Path) -> None:
    assert set(imported_files(package, ["loop"], ("tools",))) == {
        *("__init__.py", "loop.py", "worlds/__init__.py", "worlds/far.py")
    }
    assert "shown.py" not in imported_files(package, ["loop"], ("shown",))
    assert "tools/deep.py" in imported_files(package, ["loop"], ("tools.dee",))


def test_a_name_that_there_is_not_has_no_files(package: Path) -> None:
    assert set(imported_files(package, ["nowhere.Class"])) == {"__init__.py"}
    assert imported_files(package / "worlds" / "none", ["loop"]) == {}


def test_names_in_a_file_of_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import os\nfrom .other import this\nfrom troupe.envs.base import TeamEnv\nimport troupe.routing\n")
    assert imported_names(file) == ["envs.base.TeamEnv", "routing"]
    file.write_text("def (")
    assert imported_names(file) == []

"""Which files are the user's code, and of which commits they are."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from troupe.runs.own_code import _sources, commits, own_sources

CONFIG = {"env": {"_target_": "lab_worlds.game.Game", "rules": [{"_target_": "torch.nn.Identity"}]}}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that imports a module beside it, which imports an installed package."""
    package = tmp_path / "lab_worlds"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "game.py").write_text("import json, lab_rules\nfrom troupe.envs.base import TeamEnv\nfrom . import x\n")
    (tmp_path / "lab_rules.py").write_text("from pytest import mark\nimport numpy.linalg\nimport nowhere_at_all\n")
    (tmp_path / "unused.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    _sources.cache_clear()
    yield tmp_path
    _sources.cache_clear()


def test_a_target_s_package_and_what_it_imports(lab: Path) -> None:
    assert own_sources(CONFIG) == {
        "lab_worlds/__init__.py": lab / "lab_worlds" / "__init__.py",
        "lab_worlds/game.py": lab / "lab_worlds" / "game.py",
        "lab_rules.py": lab / "lab_rules.py",
    }
    got = {"rule": {"_target_": "hydra.utils.get_method", "path": "lab_rules.f"}}
    assert list(own_sources(got)) == ["lab_rules.py"]


@pytest.mark.parametrize("target", ["troupe.envs.grid.Sokoban", "torch.optim.AdamW", "gone.World", "__main__.World"])
def test_troupe_its_requirements_and_what_is_not_there_have_no_sources(target: str) -> None:
    assert own_sources({"env": {"_target_": target}}) == {}


def test_what_is_no_python_imports_nothing(lab: Path) -> None:
    (lab / "lab_rules.py").write_text("def (\n")
    assert "lab_rules.py" in own_sources(CONFIG)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_code_and_configurations(lab: Path) -> None:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", "-C", str(lab), *identity, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    conf = lab / "conf"
    (conf / "env").mkdir(parents=True)
    assert commits(CONFIG, [conf]) == ""
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD")[:12]
    (lab / "runs").mkdir()
    (lab / "runs" / "config.yaml").touch()  # no source
    assert commits(CONFIG, [conf]) == commits({}, [conf]) == commits(CONFIG, []) == commit
    assert commits({}, []) == ""
    (conf / "env" / "new.yaml").touch()
    assert (commits({}, [conf]), commits(CONFIG, [])) == (f"{commit}-dirty", commit)
    (lab / "lab_rules.py").write_text("a = 1\n")
    assert commits(CONFIG, []) == f"{commit}-dirty"

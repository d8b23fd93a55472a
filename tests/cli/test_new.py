"""`troupe new`: a project outside of the repository."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from troupe.cli.new import main
from troupe.envs.testing import check_world

from ..documented_commands import of_project


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The project ``my_team``, in a folder of another name."""
    main(["my_team", str(tmp_path / "project")])
    assert "next: cd " in capsys.readouterr().out
    return tmp_path / "project"


def run(project: Path, *words: str, timeout: int = 300) -> str:
    """The output of ``python -m WORDS`` in the project; it succeeds."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_file_is_written(project: Path) -> None:
    files = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert files == {
        ".gitignore",
        "README.md",
        "hydra_plugins/my_team_search_path.py",
        "my_team/__init__.py",
        "my_team/configs/__init__.py",
        "my_team/configs/algorithm/my_team.yaml",
        "my_team/configs/env/my_team.yaml",
        "my_team/configs/experiment/my_team_specialized.yaml",
        "my_team/configs/policy/my_team.yaml",
        "my_team/configs/sweep/my_team.yaml",
        "my_team/credit.py",
        "my_team/world.py",
        "pyproject.toml",
        "tests/test_configs.py",
        "tests/test_credit.py",
        "tests/test_world.py",
    }
    texts = "".join((project / file).read_text() for file in files)
    assert "{{" not in texts and "NAME" not in texts


async def test_the_world_keeps_the_contract(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(project)
    from my_team.world import Meeting  # type: ignore[import-not-found]

    for module in ("my_team", "my_team.world"):
        del sys.modules[module]
    await check_world(Meeting(), tasks=2, local=(0.0, 0.2))


def test_it_keeps_the_style_of_troupe(project: Path) -> None:
    config = ["--isolated", "--line-length", "120"]
    run(project, "ruff", "check", *config, "--select", "E,F,I,B,UP,SIM", ".")
    run(project, "ruff", "format", "--check", *config, ".")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My_team", "'My_team' cannot be the name of a Python package"),
        ("class", "'class' cannot be the name of a Python package"),
        ("sokoban", "sokoban is the name of one of Troupe's own configurations"),
        ("json", "json is the name of a Python module that exists here"),
        ("troupe", "troupe is the name of a Python module that exists here"),
    ],
)
def test_a_name_that_is_taken_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=f"^error: {message}"):
        main([name, str(tmp_path / "project")])
    assert not (tmp_path / "project").exists()


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(SystemExit, match="exists and is not an empty folder"):
            main(["my_team", str(folder)])


TINY = ["loop.iterations=1", "loop.tasks_per_iteration=4", "loop.validation_tasks=4", "loop.test_tasks=4"]
BUDGET = {
    "warm-start": ["hidden=32", "layers=1", "steps=20", "validation_tasks=4"],
    "train": TINY,
    "sweep": [*TINY, "seed=0"],
    "eval": ["tasks=4"],
}
"""By command, the keys of a run of seconds."""


@pytest.mark.slow
def test_every_command_of_its_pages_works(tmp_path: Path) -> None:
    """Those of docs/your_project.md and of the README, from the folder, without an installation."""
    main(["meeting", str(tmp_path)])
    pages = [Path(__file__).parents[2] / "docs/your_project.md", tmp_path / "README.md"]
    commands = list(dict.fromkeys(command for page in pages for command in of_project(page.read_text())))
    assert commands[:3] == ["troupe new meeting", "cd meeting", "pip install -e '.[dev]'"]
    for command in commands[3:]:
        words = shlex.split(command)
        if words[0] == "troupe":
            run(tmp_path, *words, *BUDGET.get(words[1], []))
        elif words[0] != "pip":
            assert words[:2] == ["python", "-m"]
            run(tmp_path, *words[2:], "-W", "ignore")
    assert (tmp_path / "runs/first/report.html").is_file()
    assert "| ranks |" in (tmp_path / "runs/sweeps/meeting/meeting_specialized/table.md").read_text()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    words = ["-m", "troupe", "--config-dir", "../meeting/configs", "env=meeting", "dry_run=true"]
    words += [f"policies.{agent}.base=../bases/meeting" for agent in ("ann", "bob", "chair")]
    subprocess.run([sys.executable, *words], cwd=elsewhere, env=env, check=True, timeout=120)

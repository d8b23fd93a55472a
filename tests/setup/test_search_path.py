"""The user's folders of configurations, however they are given."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from troupe.errors import ConfigError
from troupe.setup.command_line import check_command_line
from troupe.setup.composition import configurations
from troupe.setup.evaluation import untrained_team
from troupe.sweep.options import Options
from troupe.sweep.plan import plan_sweep

ROOT = Path(__file__).parents[2]


class LabPlugin(SearchPathPlugin):
    """What an installed package has in ``hydra_plugins``."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("lab", "pkg://lab.conf")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package ``lab`` with configurations."""
    conf = tmp_path / "lab" / "conf"
    for group in ("experiment", "sweep"):
        (conf / group).mkdir(parents=True)
    for folder in (tmp_path / "lab", conf):
        (folder / "__init__.py").touch()
    (conf / "experiment" / "mine.yaml").write_text("# @package _global_\nloop: {iterations: 3}\n")
    (conf / "sweep" / "ours.yaml").write_text("question: '?'\nsettings: {a: [], b: [algorithm=grpo]}\nseeds: [0]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield conf
    for name in [name for name in sys.modules if name.partition(".")[0] == "lab"]:
        del sys.modules[name]


@pytest.fixture(
    params=["--config-dir", *(pytest.param(each, marks=pytest.mark.slow) for each in ("hydra.searchpath", "plugin"))]
)
def words(request: pytest.FixtureRequest, own: Path) -> Iterator[list[str]]:
    """The words of a command line with which the folder is known."""
    if request.param != "plugin":
        yield ["--config-dir", str(own)] if request.param == "--config-dir" else ["hydra.searchpath=[lab/conf]"]
        return
    plugins = Plugins.instance()
    plugins.register(LabPlugin)
    yield []
    plugins.plugin_type_to_subclass_list[SearchPathPlugin].remove(LabPlugin)
    del plugins.class_name_to_class[f"{LabPlugin.__module__}.{LabPlugin.__qualname__}"]


def test_every_command_finds_the_users_files(words: list[str]) -> None:
    assert check_command_line("train", [*words, "experiment=mine"]) == [*words, "experiment=mine"]
    check_command_line("eval", ["exp=mine", *words])
    with pytest.raises(ConfigError, match=r"experiment=mina is unknown; did you mean mine\?"):
        check_command_line("train", [*words, "experiment=mina"])
    with pytest.raises(ConfigError, match=r"experiment=mina is unknown; did you mean mine\?"):
        check_command_line("eval", ["exp=mina", *words])
    options, others = Options.split("sweep", [*words, "sweep=ours", "experiment=mine"])
    file = options.file()
    options.check(file.settings, file.overrides, others)
    record = plan_sweep(options, others)
    assert [job.overrides for job in record.jobs] == [
        ("experiment=mine", "seed=0"),
        ("algorithm=grpo", "experiment=mine", "seed=0"),
    ]
    with pytest.raises(ConfigError, match=r"sweep=our is unknown; did you mean ours\?"):
        Options.split("sweep", [*words, "sweep=our"])[0].file()
    with pytest.raises(ConfigError, match=r"lop\.iterations is an unknown key; did you mean loop\.iterations\?"):
        options.check(file.settings, file.overrides, ["experiment=mine", "lop.iterations=2"])


def test_an_untrained_team_of_the_users_experiment(own: Path) -> None:
    with configurations(str(own)):
        assert untrained_team("experiment=mine", []).config["loop"]["iterations"] == 3


def test_a_file_with_the_name_of_one_of_troupes_is_refused(words: list[str], own: Path) -> None:
    (own / "env").mkdir()
    (own / "env" / "sokoban.yaml").write_text("defaults: [code]\n")
    with pytest.raises(ConfigError, match=r"conf/env/sokoban\.yaml has the name of Troupe's own .*env/sokoban\.yaml"):
        check_command_line("train", [*words, "env=sokoban"])
    options, others = Options.split("sweep", [*words, "sweep=ours"])
    file = options.file()
    with pytest.raises(ConfigError, match=r"conf/env/sokoban\.yaml has the name"):
        options.check(file.settings, file.overrides, others)


def test_troupes_own_folder_is_no_copy() -> None:
    check_command_line("train", ["--config-dir", str(ROOT / "configs"), "env=code"])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("hydra.searchpath=[nowhere]", r"hydra\.searchpath: nowhere is no folder of configurations"),
        ("hydra.searchpath=conf", r"hydra\.searchpath=conf: hydra\.searchpath is a list of folders"),
    ],
)
def test_a_search_path_without_folders(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_command_line("train", [word, "seed=1"])


def test_a_file_that_is_not_yaml_is_named(own: Path) -> None:
    (own / "experiment" / "mine.yaml").write_text("a: [1\n")
    with pytest.raises(ConfigError, match=r"not YAML: .*experiment/mine\.yaml"):
        check_command_line("train", ["--config-dir", str(own), "experiment=mine"])

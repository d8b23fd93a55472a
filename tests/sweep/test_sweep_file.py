"""What cannot be read is said in one line, by sweeps and tables alike."""

from pathlib import Path

import pytest

from troupe.errors import ConfigError
from troupe.sweep.options import Options
from troupe.sweep.publication_file import TableFile
from troupe.sweep.sweep_file import read_yaml


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"question: \xff\n", "not text in UTF-8: .*0xff in position 10"),
        (b"question: [\n", "not YAML: while parsing"),
        (b"question: 2026-13-01\n", "not YAML: month must be in 1..12"),
        (b"settings: {2026-10-01: [x=1]}\n", "the file must hold plain values under names: keys must be str"),
        (b"settings: &x {a: *x}\n", "the file must hold plain values under names: Circular reference"),
        (b"settings:\n  a: []\n  b: []\n  a: [x=1]\n", "not YAML: key 'a' is there twice, line 2 and below"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    for key, read in (("sweep", lambda name: Options(sweep=name).file()), ("table", TableFile.read)):
        with pytest.raises(ConfigError, match=rf"^{key}={file}: {said}") as raised:
            read(str(file))
        assert "\n" not in str(raised.value)


def test_a_sweep_in_a_folder_of_ones_own_is_named(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "mine.yaml").write_bytes(b"question: \xff\n")
    with pytest.raises(ConfigError, match=r"^sweep=mine: not YAML in UTF-8: .*0xff"):
        Options(sweep="mine", config_dir=str(tmp_path)).file()


def test_keys_that_are_merged_may_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert read_yaml(file) == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}

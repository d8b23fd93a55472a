"""Tables: files of every format and names on the hub, their columns checked."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from troupe.envs.datasets import DataError, Table
from troupe.guards import bounds

Write = Callable[..., str]
ROW = {"name": "a", "tests": {"input": ["1"], "output": ["2"]}, "level": 3}
COLUMNS = {"name": str, "tests": dict}


def test_only_the_columns_that_are_read(write: Write) -> None:
    assert [*Table(write([ROW, ROW])).rows(COLUMNS)] == [{"name": "a", "tests": ROW["tests"]}] * 2


def test_a_missing_column_is_named(write: Write) -> None:
    with pytest.raises(DataError, match=r"data0\.jsonl has no column question, answer; its columns are name, tests"):
        next(Table(write([ROW])).rows({"question": str, "name": str, "answer": str}))


@pytest.mark.parametrize(("types", "words"), [(str, "str"), ((str, dict), "str or dict")])
def test_a_cell_of_another_type_is_named(write: Write, types: Any, words: str) -> None:
    with pytest.raises(DataError, match=rf"data0\.jsonl, row 0, column level: expected {words}, got int"):
        next(Table(write([ROW])).rows({"level": types}))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: no such file"):
        Table("nowhere.jsonl").load()
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": ')
    with pytest.raises(DataError, match=r"broken\.jsonl cannot be read as json: line 2 is no JSON"):
        Table(str(tmp_path / "broken.jsonl")).load()
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match=r"empty\.jsonl is empty"):
        Table(str(tmp_path / "empty.jsonl")).load()
    for name, text in {"empty.jsonl.gz": b"", "blank.jsonl": b"\n\n"}.items():
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        with pytest.raises(DataError, match=rf"{name} cannot be read as json: it has no rows"):
            Table(str(tmp_path / name)).load()


def test_a_local_place_without_data_files(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").touch()
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "folder", tmp_path / "rows.txt"):
        with pytest.raises(DataError, match=rf"{place.name} is neither a file of \.json, .* nor a folder of"):
            Table(str(place)).load()


def test_text_in_another_encoding_is_named_with_its_row(tmp_path: Path) -> None:
    file = tmp_path / "latin.jsonl"
    file.write_bytes(b'{"a": "x"}\n{"a": "caf\xe9"}\n')
    with pytest.raises(DataError, match=r"latin\.jsonl, row \d: 'utf-8' codec can't decode"):
        list(Table(str(file)).rows({"a": str}))


def test_a_folder_whose_files_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").touch()
    with pytest.raises(DataError, match=rf"{tmp_path.name} cannot be read: "):
        Table(str(tmp_path)).load()
    with pytest.raises(DataError, match="a data set needs a path or a name on the hub"):
        Table("").load()


def test_a_truth_value_is_no_number(write: Write) -> None:
    table = Table(write([{"a": True}]))
    with pytest.raises(DataError, match=r"row 0, column a: expected str or int, got bool"):
        next(table.rows({"a": (str, int)}))
    assert next(table.rows({"a": bool})) == {"a": True}


def test_parquet_is_read_alike(tmp_path: Path, write: Write) -> None:
    table = Table(write([ROW, ROW]))
    table.load().to_parquet(tmp_path / "rows.parquet")
    assert [*Table(str(tmp_path / "rows.parquet")).rows(COLUMNS)] == [*table.rows(COLUMNS)]


def test_a_path_without_a_suffix_is_a_name_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    calls: list[Any] = []
    without_files = SimpleNamespace(config=SimpleNamespace(data_files=None), cache_dir="nowhere")
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_, **__: without_files)
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: calls.append((args, kwargs)))
    Table("codeparrot/apps", split="test", config="all", revision="abc").load()
    assert calls == [(("codeparrot/apps", "all"), {"split": "test", "revision": "abc"})]


def test_a_name_that_the_hub_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    from huggingface_hub import constants

    for module in (datasets.config, constants):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", True)
    message = r"^nobody/nothing cannot be loaded from the hub: .* Give a local file of the same columns"
    with pytest.raises(DataError, match=message):
        Table("nobody/nothing").load()


# ---- files that are made to harm ------------------------------------------------------------------------------------

LINE = b'{"name": "a"}\n'


def archive(kind: str) -> bytes:
    opened = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(opened, "w") as packed:
            packed.writestr("../../evil.jsonl", LINE)
    else:
        with tarfile.open(fileobj=opened, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("../../evil.jsonl"))
    return opened.getvalue()


HARMFUL = {
    "a.jsonl": (archive("zip"), "it is a zip archive; unpack it first"),
    "b.jsonl": (archive("tar"), "it is a tar archive"),
    "c.jsonl": (lzma.compress(LINE), "it is compressed with xz"),
    "d.csv": (bz2.compress(LINE), "it is compressed with bzip2"),
    "e.json": (b"(\xb5/\xfd" + LINE, "it is compressed with zstd"),
    "f.jsonl": (gzip.compress(LINE), r"compressed with gzip, without \.gz in its name"),
    "g.jsonl.gz": (gzip.compress(gzip.compress(LINE)), "cannot be read as json"),
    "h.jsonl.gz": (gzip.compress(LINE * 1000)[:-9], "cannot be read as json"),
    "i.jsonl.gz": (LINE, "cannot be read as json"),
    "j.jsonl": (b'{"a":' * 100_000, "cannot be read as json"),
    "k.jsonl": (bytes(1000), "cannot be read as json"),
    "l.parquet": (b"PAR1" + b"\xff" * 100 + b"PAR1", "cannot be read as parquet"),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_files_that_are_something_else(tmp_path: Path, name: str) -> None:
    content, message = HARMFUL[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        Table(str(tmp_path / name)).load()
    assert os.listdir(tmp_path) == [name]


def test_a_file_that_unfolds_too_far_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ALWAYS", 1 << 20)
    (tmp_path / "fair.jsonl.gz").write_bytes(gzip.compress(LINE * 50_000))  # below what may always be
    assert len(Table(str(tmp_path / "fair.jsonl.gz")).load()) == 50_000
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(LINE * 200_000))
    with pytest.raises(DataError, match=r"bomb\.jsonl\.gz cannot be read as json: it unfolds to more than 1 MiB"):
        Table(str(tmp_path / "bomb.jsonl.gz")).load()


def test_a_table_of_too_many_rows_is_not_read(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    Table(write([ROW, ROW, ROW])).load().to_parquet(tmp_path / "rows.parquet")
    monkeypatch.setattr(bounds, "MOST_ROWS", 2)
    with pytest.raises(DataError, match=r"rows\.parquet .*: it has 3 rows, of at most 2"):
        Table(str(tmp_path / "rows.parquet")).load()


@pytest.mark.parametrize(
    ("memory", "said"), [(4 << 30, "it unfolds to more than 64 MiB"), (1 << 29, "it needs more than 512")]
)
def test_a_value_that_stands_in_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, said: str
) -> None:
    """A dictionary holds it once, and its footer counts it once."""
    import pyarrow
    from pyarrow import parquet

    monkeypatch.setattr(bounds, "ALWAYS", 1 << 26)
    monkeypatch.setattr(bounds, "_TRIAL_MEMORY", memory)
    file = tmp_path / "rows.parquet"
    values = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1024), pyarrow.array(["x" * 500_000]))
    parquet.write_table(pyarrow.table({"name": values}), file, store_schema=False)
    assert file.stat().st_size < 1 << 20
    with pytest.raises(DataError, match=rf"rows\.parquet cannot be read as parquet: .*{said}"):
        Table(str(file)).load()


EXPLODING = {
    "keys.jsonl": b"".join(b'{"k%d": 1}\n' % i for i in range(5000)),
    "keys.json": b"[\n" + b",\n".join(b'{"k%d": 1}' % i for i in range(5000)) + b"]",
    "inner.jsonl": b'{"a": [' + b", ".join(b'{"k%d": 1}' % i for i in range(5000)) + b"]}\n",
    "packed.jsonl.gz": gzip.compress(b"".join(b'{"k%d": 1}\n' % i for i in range(5000))),
    "columns.csv": b"k," * 5000 + b"k\n" + b"1\n" * 5000,
}


@pytest.mark.parametrize("name", EXPLODING)
def test_keys_that_few_rows_have_are_columns_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """1,000 times as many rows of this kind, in 14 MB, would be a table of 200 TB."""
    monkeypatch.setattr(bounds, "ALWAYS", 1 << 24)
    (tmp_path / name).write_bytes(EXPLODING[name])
    with pytest.raises(DataError, match=rf"{name} cannot be read .*different keys: as a table, more than 16 MiB"):
        Table(str(tmp_path / name)).load()


def test_a_document_of_several_lines_is_read(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([ROW, ROW], indent=2))
    assert len(Table(str(tmp_path / "rows.json")).load()) == 2


# ---- names and slices of local files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("run[1]/rows.jsonl", "run1/rows.jsonl"),
        ("a*.jsonl", "ab.jsonl"),
        ("q?.jsonl", "qq.jsonl"),
        ("[!a].jsonl", "x.jsonl"),
        ("[[]x[*]].jsonl", "[x*].jsonl"),
        ("**/rows.jsonl", "b/rows.jsonl"),
    ],
)
def test_a_path_is_no_pattern(tmp_path: Path, name: str, other: str) -> None:
    for each in (name, other):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text(json.dumps({"name": each}) + "\n")
    assert [*Table(str(tmp_path / name)).rows({"name": str})] == [{"name": name}]


def test_a_path_that_the_library_takes_for_a_chain(tmp_path: Path) -> None:
    (tmp_path / "a::b.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match=r"a::b\.jsonl cannot be read as json: Unable to find"):
        Table(str(tmp_path / "a::b.jsonl")).load()


SLICES = {
    "test": [0, 1, 2, 3, 4],
    "train+validation": [0, 1, 2, 3, 4],
    "test[1:3]": [1, 2],
    "test[-2:]": [3, 4],
    "test[:40%]": [0, 1],
    "test[3:163]": [3, 4],
    "test[:1] + test[4:]": [0, 4],
}


@pytest.mark.parametrize("split", SLICES)
def test_slices_of_a_local_file(write: Write, split: str) -> None:
    file = write([{"n": n} for n in range(5)])
    assert [row["n"] for row in Table(file, split).rows({"n": int})] == SLICES[split]


@pytest.mark.parametrize(
    ("split", "reason"),
    [
        ("test[33:163]", "has no such rows, but 5"),
        ("test[3:1]", "has no such rows, but 5"),
        ("test[1:2", "Unrecognized instruction format"),
        ("test[a:b]", "Unrecognized instruction format"),
        ("test[0]", "Unrecognized instruction format"),
        ("test]", "Unrecognized instruction format"),
        ("train[:2]+test[:2]", "is one file; give slices of one name"),
    ],
)
def test_slices_that_a_local_file_does_not_have(write: Write, split: str, reason: str) -> None:
    with pytest.raises(DataError, match=re.escape(f"split={split}: ") + f".*{reason}"):
        Table(write([{"n": n} for n in range(5)]), split).load()


def test_a_cache_that_cannot_be_written_is_named(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    file = write([{"a": 1}])
    (tmp_path / "no_folder").touch()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "no_folder")
    with pytest.raises(DataError, match=rf"{file} cannot be read as json: .*keeps tables in {tmp_path}/no_folder; HF_"):
        Table(file).load()

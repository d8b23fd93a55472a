"""Tables: files of every format and names on the hub, their columns checked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troupe.envs.datasets import DataError, Table

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
    with pytest.raises(DataError, match=r"broken\.jsonl cannot be read as json"):
        Table(str(tmp_path / "broken.jsonl")).load()


def test_parquet_is_read_alike(tmp_path: Path, write: Write) -> None:
    table = Table(write([ROW, ROW]))
    table.load().to_parquet(tmp_path / "rows.parquet")
    assert [*Table(str(tmp_path / "rows.parquet")).rows(COLUMNS)] == [*table.rows(COLUMNS)]


def test_a_path_without_a_suffix_is_a_name_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    calls: list[Any] = []
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

"""Small files of rows, read with a cache of their own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's cache of data sets."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """``write(rows)``: the path of a .jsonl file of these rows."""

    def write_rows(rows: list[dict[str, Any]]) -> str:
        path = tmp_path / f"data{len(list(tmp_path.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write_rows

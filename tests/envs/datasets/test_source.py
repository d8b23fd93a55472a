"""Sources: rows that are left out are counted, wrong cells are named."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from troupe.envs.datasets import CellError, DataError, DataSource, Table, UnusableRow
from troupe.envs.math.sources import Question

Write = Callable[..., str]


class Sums(DataSource[Question]):
    """Questions of a column ``sum``, such as 1+2."""

    def __init__(self, path: str) -> None:
        super().__init__(Table(path), {"sum": str})

    def item(self, row: Mapping[str, Any]) -> Question:
        if not row["sum"]:
            raise UnusableRow("no sum")
        if "+" not in row["sum"]:
            raise CellError("sum", f"expected a sum, got {row['sum']}")
        return Question(row["sum"], "0")


def test_rows_that_are_left_out_are_counted(write: Write) -> None:
    counts: Counter[str] = Counter()
    source = Sums(write([{"sum": text} for text in ("1+2", "", "3+4", "")]))
    assert [question.text for question in source.items(counts)] == ["1+2", "3+4"]
    assert counts == {"rows left out: no sum": 2}


def test_a_wrong_cell_is_named_with_file_row_and_column(write: Write) -> None:
    path = write([{"sum": "1+2"}, {"sum": "3"}])
    with pytest.raises(DataError) as error:
        list(Sums(path).items(Counter()))
    assert str(error.value) == f"{path}, row 1, column sum: expected a sum, got 3"

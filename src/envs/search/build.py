"""Make the index of a corpus: `python -m troupe.envs.search.build CORPUS FOLDER [--split SPLIT] [--config CONFIG]`.

CORPUS is a file (.jsonl, .json, .parquet, .csv) or a name on the hub, with the columns ``title`` and ``text``, or
``contents`` (the title on the first line, as in Pyserini's and FlashRAG's corpora), or it is a set of questions with
paragraphs: ``context`` (HotpotQA, 2WikiMultiHopQA; the hub's form or their authors') or ``paragraphs`` (MuSiQue).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..datasets import CellError, Columns, DataError, Table
from .index import Index, Passage
from .sources import pairs

Reader = Callable[[Mapping[str, Any]], Iterator[Passage]]


def read_passages(table: Table) -> list[Passage]:
    """The passages of ``table``, each once, in their order.

    Raises :class:`DataError` for a table that has none, and with the row and the column for one that is not as its card
    says.
    """
    names = table.load().column_names
    schema = next((schema for schema in SCHEMAS if schema[0].keys() <= set(names)), None)
    if schema is None:
        known = "; ".join(", ".join(columns) for columns, _ in SCHEMAS)
        raise DataError(f"{table.path} has no columns of passages ({known}); its columns are {', '.join(names)}")
    columns, read = schema
    passages: dict[Passage, None] = {}
    for number, row in enumerate(table.rows(columns)):
        try:
            passages |= dict.fromkeys(read(row))
        except CellError as error:
            raise DataError(f"{table.path}, row {number}, {error}") from error
    return list(passages)


def _title_and_text(row: Mapping[str, Any]) -> Iterator[Passage]:
    yield Passage(row["title"], row["text"])


def _contents(row: Mapping[str, Any]) -> Iterator[Passage]:
    title, _, text = row["contents"].partition("\n")
    yield Passage(title.strip('"'), text)


def _context(row: Mapping[str, Any]) -> Iterator[Passage]:
    for title, sentences in pairs(row, "context", "title", "sentences"):
        if not isinstance(sentences, list) or not all(isinstance(each, str) for each in sentences):
            raise CellError("context", f"expected a list of sentences, got {sentences!r:.40}")
        yield Passage(title, "".join(sentences))


def _paragraphs(row: Mapping[str, Any]) -> Iterator[Passage]:
    try:
        for paragraph in row["paragraphs"]:
            yield Passage(paragraph["title"], paragraph["paragraph_text"])
    except (KeyError, TypeError) as error:
        raise CellError("paragraphs", "expected title and paragraph_text of each") from error


SCHEMAS: tuple[tuple[Columns, Reader], ...] = (
    ({"title": str, "text": str}, _title_and_text),
    ({"contents": str}, _contents),
    ({"context": (dict, list)}, _context),
    ({"paragraphs": list}, _paragraphs),
)
"""The columns of passages, and their reader; the first that fit are read."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m troupe.envs.search.build",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", default="train", help="of a name on the hub")
    parser.add_argument("--config", help="of a name on the hub")
    options = parser.parse_args(arguments)
    try:
        if options.folder.exists():
            raise FileExistsError(f"{options.folder} is there already; delete it or name another folder")
        passages = read_passages(Table(options.corpus, options.split, options.config))
        Index.of(passages).save(options.folder)
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    print(f"{options.folder}: {len(passages):,} passages")


if __name__ == "__main__":
    main()

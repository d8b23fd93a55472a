"""The index: order, ties, files, and what is said where there is none."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest

from troupe.envs.datasets import DataError, Table
from troupe.envs.search import build
from troupe.envs.search.index import AbsentIndexError, Index, Passage

from .conftest import PASSAGES

TIES = [Passage(f"t{i}", word) for i, word in enumerate("tree tree stone tree tree".split())]


def titles(index: Index, query: str, count: int) -> list[str]:
    return [passage.title for passage in index.search(query, count)]


def test_the_best_comes_first_and_of_equals_the_first() -> None:
    index = Index.of(PASSAGES)
    assert titles(index, "where was charles babbage born", 1) == ["Charles Babbage"]
    assert titles(index, "BYRON", 5)[0] == "Lord Byron"
    for count, places in ((1, [0]), (2, [0, 1]), (3, [0, 1, 3]), (9, [0, 1, 3, 4])):
        assert Index.of(TIES).best("tree", count) == places


@pytest.mark.parametrize("query", ["", " ", "zebra", "the of and", "?!", "\ud800", "🙂", "Лондон"])
def test_a_query_without_a_word_of_any_passage_finds_nothing(query: str) -> None:
    assert Index.of(PASSAGES).search(query, 3) == ()


def test_a_saved_index_finds_the_same(index_folder: str) -> None:
    index, saved = Index.of(PASSAGES), Index.load(Path(index_folder), "env.index")
    assert saved.at(range(len(PASSAGES))) == PASSAGES
    for query in ("engine", "London Thames", "Byron answer", "nothing of it"):
        assert saved.search(query, 3) == index.search(query, 3)
    assert not list(Path(index_folder).rglob("*.pkl"))
    with pytest.raises(FileExistsError, match="is there already"):
        index.save(Path(index_folder))


def test_no_words_no_index() -> None:
    with pytest.raises(ValueError, match="needs passages with words"):
        Index.of([Passage("", "!")])


def test_no_index_is_one_line_with_the_key_and_the_remedy(path: Path) -> None:
    with pytest.raises(AbsentIndexError) as absent:
        Index.load(path, "env.index")
    assert str(absent.value) == (
        f"env.index={path}: there is no index; make one with `python -m troupe.envs.search.build CORPUS {path}`"
    )


@pytest.mark.parametrize("file", ["vocab.index.json", "corpus.jsonl", "data.csc.index.npy", "params.index.json"])
def test_a_broken_index_is_one_line_with_the_key_and_the_remedy(path: Path, file: str) -> None:
    Index.of(PASSAGES).save(path)
    content = (path / file).read_bytes()
    for damaged in (None, b"", content[: len(content) // 2]):
        (path / file).unlink() if damaged is None else (path / file).write_bytes(damaged)
        with pytest.raises(AbsentIndexError) as broken:
            Index.load(path, "env.index")
        assert str(broken.value).startswith(f"env.index={path} is no whole index (")
        assert str(broken.value).endswith(f"make one with `python -m troupe.envs.search.build CORPUS {path}`")


# ---- corpora --------------------------------------------------------------------------------------------------------

ROWS = {
    "title and text": {"id": "1", "title": "London", "text": "On the Thames."},
    "contents": {"id": "1", "contents": '"London"\nOn the Thames.'},
    "context": {"id": "a", "context": {"title": ["London"], "sentences": [["On ", "the Thames."]]}},
    "context of pairs": {"_id": "a", "context": [["London", ["On ", "the Thames."]]]},
    "paragraphs": {"paragraphs": [{"idx": 0, "title": "London", "paragraph_text": "On the Thames."}]},
}


def corpus(folder: Path, *rows: dict) -> str:
    file = folder / "corpus.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("schema", ROWS)
def test_an_index_is_made_of_every_kind_of_corpus(schema: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build.main([corpus(path.parent, ROWS[schema], ROWS[schema]), str(path)])
    assert capsys.readouterr().out == f"{path}: 1 passages\n"
    assert Index.load(path, "env.index").search("thames", 2) == (Passage("London", "On the Thames."),)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"body": "x"}, r"no columns of passages \(title, text; contents; context; paragraphs\); its columns are body"),
        ({"title": "x", "text": 3}, "row 0, column text: expected str, got int"),
        ({"context": {"title": ["x"], "sentences": []}}, "column context: expected title, texts, and as many"),
        ({"context": [[1, ["x"]]]}, "column context: expected title, texts, and as many"),
        ({"context": [["x", "y"]]}, "row 0, column context: expected a list of sentences, got 'y'"),
        ({"paragraphs": [{"title": "x"}]}, "row 0, column paragraphs: expected title and paragraph_text"),
    ],
)
def test_a_corpus_of_another_kind_is_refused(row: dict, message: str, path: Path) -> None:
    with pytest.raises(DataError, match=message):
        build.read_passages(Table(corpus(path.parent, row)))
    with pytest.raises(SystemExit, match=message):
        build.main([str(path.parent / "corpus.jsonl"), str(path)])
    assert not path.exists()


def test_nothing_is_overwritten_and_nothing_half_is_left(path: Path) -> None:
    file = corpus(path.parent, ROWS["contents"])
    with patch("bm25s.BM25.save", side_effect=OSError("No space left")), pytest.raises(SystemExit, match="No space"):
        build.main([file, str(path)])
    assert not path.exists()
    path.mkdir()
    with pytest.raises(SystemExit, match="is there already; delete it or name another folder"):
        build.main([file, str(path)])

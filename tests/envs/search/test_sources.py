"""Data sets of questions: read by their cards' schemas, in disjoint splits."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from troupe.envs.datasets import DataError
from troupe.envs.search import QuestionSearch
from troupe.envs.search.sources import (
    Bamboogle,
    HotpotQA,
    MuSiQue,
    NaturalQuestions,
    SearchQuestion,
    SearchSource,
    TwoWikiMultiHopQA,
    contains,
    exact_match,
    f1,
    normalise,
)
from troupe.experience import Split


def hops(number: int = 0, **cells: Any) -> dict[str, Any]:
    """A row of HotpotQA."""
    return {
        "id": f"5a{number}",
        "question": f"Who directed the film number {number}?",
        "answer": f"Director {number}",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": {"title": ["A", "B", "A"], "sent_id": [0, 2, 1]},
        "context": {"title": ["A", "B", "C"], "sentences": [["a."], ["b."], ["c."]]},
        **cells,
    }


def paragraph(title: str, *, supports: bool) -> dict[str, Any]:
    return {"idx": 0, "title": title, "paragraph_text": "…", "is_supporting": supports}


MUSIQUE = {
    "id": "2hop__1_2",
    "paragraphs": [paragraph("A", supports=True), paragraph("B", supports=False), paragraph("C", supports=True)],
    "question": "Who?",
    "question_decomposition": [{"id": 1, "question": "A >> B", "answer": "C", "paragraph_support_idx": 0}],
    "answer": "Ann Lee",
    "answer_aliases": ["A. Lee", "Ann Lee"],
    "answerable": True,
}
ROWS: dict[type[SearchSource], tuple[dict[str, Any], SearchQuestion]] = {
    NaturalQuestions: (
        {"question": "who sings it", "answer": ["Ann", "Ann Lee", "The."]},
        SearchQuestion("who sings it", ("Ann", "Ann Lee")),
    ),
    HotpotQA: (hops(), SearchQuestion("Who directed the film number 0?", ("Director 0",), ("A", "B"))),
    TwoWikiMultiHopQA: (
        hops(type="compositional", evidences=[["A", "director", "B"]]),
        SearchQuestion("Who directed the film number 0?", ("Director 0",), ("A", "B")),
    ),
    MuSiQue: (MUSIQUE, SearchQuestion("Who?", ("Ann Lee", "A. Lee"), ("A", "C"))),
    Bamboogle: ({"Question": "When?", "Answer": "1984"}, SearchQuestion("When?", ("1984",))),
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """``write(*rows)``: the path of a file of these rows."""

    def write_rows(*rows: dict[str, Any]) -> str:
        path = tmp_path / f"data{len(list(tmp_path.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write_rows


@pytest.mark.parametrize("source", ROWS, ids=lambda source: source.__name__)
def test_every_set_is_read_by_its_schema(source: type[SearchSource], write: Callable[..., str]) -> None:
    row, question = ROWS[source]
    assert list(source(write(row, row)).items(Counter())) == [question, question]


@pytest.mark.parametrize("source", [HotpotQA, TwoWikiMultiHopQA], ids=lambda source: source.__name__)
def test_the_files_of_the_authors_have_pairs(source: type[SearchSource], write: Callable[..., str]) -> None:
    row, question = ROWS[source]
    facts = [["A", 0], ["B", 2], ["A", 1]]
    assert list(source(write({**row, "supporting_facts": facts})).items(Counter())) == [question]


def test_what_cannot_be_answered_is_left_out_and_counted(write: Callable[..., str]) -> None:
    counts: Counter[str] = Counter()
    assert not [*MuSiQue(write({**MUSIQUE, "answerable": False})).items(counts)]
    assert not [*NaturalQuestions(write({"question": "which band", "answer": ["The The", "..."]})).items(counts)]
    assert counts == {
        "rows left out: not answerable": 1,
        "rows left out: no answer is left after normalisation": 1,
    }


@pytest.mark.parametrize(
    ("source", "row", "message"),
    [
        (NaturalQuestions, {"question": "who", "answer": "Ann"}, "row 0, column answer: expected list, got str"),
        (NaturalQuestions, {"question": " ", "answer": ["Ann"]}, "row 0, column question: it is empty"),
        (Bamboogle, {"Question": "", "Answer": "x"}, "row 0, column Question: it is empty"),
        (Bamboogle, {"question": "q", "answer": "x"}, "has no column Question, Answer"),
        (HotpotQA, hops(supporting_facts={"sent_id": [1]}), "column supporting_facts: expected title, texts"),
        (HotpotQA, hops(supporting_facts=[["A", 0], ["B"]]), "row 0, column supporting_facts: expected title, texts"),
        (HotpotQA, hops(supporting_facts=[{"title": "A", "sent_id": 0}]), "or a list of such pairs"),
        (HotpotQA, hops(supporting_facts=["ab", "cd"]), "or a list of such pairs"),
        (HotpotQA, hops(supporting_facts={"title": "ab", "sent_id": "cd"}), "or a list of such pairs"),
        (MuSiQue, {**MUSIQUE, "paragraphs": [{"title": "A"}]}, "column paragraphs: expected title and is_supporting"),
    ],
)
def test_a_bad_row_is_named(
    source: type[SearchSource], row: dict[str, Any], message: str, write: Callable[..., str]
) -> None:
    with pytest.raises(DataError, match=message):
        list(source(write(row)).items(Counter()))


def test_splits_are_disjoint(write: Callable[..., str], index_folder: str) -> None:
    """By the question without case, blanks and punctuation; test keeps what is in both, contradictions go."""
    train = [hops(n) for n in range(60)] + [hops(0, answer="Somebody else")]
    test = [hops(n, question=f"who directed the film NUMBER {n}") for n in range(50, 70)]
    world = QuestionSearch(index=index_folder, train=[HotpotQA(write(*train))], test=[HotpotQA(write(*test))])
    keys = {split: set(items) for split, items in world.splits.items.items()}
    assert not keys["train"] & keys["test"] and not keys["validation"] & (keys["train"] | keys["test"])
    assert len(keys["test"]) == 20 and 0 < len(keys["validation"]) < 20
    assert len(keys["train"]) + len(keys["validation"]) == 49 and world.splits.counts["train_with_two_answers"] == 1
    for split in get_args(Split):
        assert len({task.task_id for task in world.tasks(split, 4, 0)}) == 4


# ---- normalisation, exact match and F1, by hand ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Beatles!", "beatles"),
        ("an apple a day", "apple day"),
        ("U.S.", "us"),
        ("rock-and-roll", "rockandroll"),
        ("Theatre", "theatre"),
        ("don't\tstop\n", "dont stop"),
        ("«Ça»", "«ça»"),  # the script knows ASCII punctuation alone
        ("The a an .", ""),
        ("", ""),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("answer", "accepted", "match", "overlap"),
    [
        ("Paris", ["Paris"], True, 1.0),
        ("the paris.", ["Paris, France", "Paris"], True, 1.0),
        ("Paris, France", ["Paris"], False, 2 / 3),
        ("in the city of Paris", ["Paris"], False, 2 / 5),  # in city of paris
        ("Barack Hussein Obama", ["Barack Obama"], False, 4 / 5),
        ("Obama Barack", ["Barack Obama"], False, 1.0),
        ("paris paris", ["Paris"], False, 2 / 3),
        ("New York City", ["York", "New York"], False, 4 / 5),
        ("London", ["Paris"], False, 0.0),
        ("yes", ["yes"], True, 1.0),
        ("no", ["yes"], False, 0.0),
        ("yes it is", ["yes"], False, 0.0),  # HotpotQA's rule
        ("1,000", ["1000"], True, 1.0),
        ("Ｐａｒｉｓ", ["Paris"], False, 0.0),
        ("Париж", ["Paris"], False, 0.0),
        ("", ["Paris"], False, 0.0),
        ("the", ["Paris"], False, 0.0),
        ("the", ["The The"], False, 0.0),  # nothing is left of either
        ("Paris", [], False, 0.0),
    ],
)
def test_exact_match_and_f1(answer: str, accepted: list[str], match: bool, overlap: float) -> None:
    assert exact_match(answer, accepted) is match
    assert f1(answer, accepted) == pytest.approx(overlap)


def test_words_in_a_row() -> None:
    assert contains("He was born in New-York, the U.S.", "the US")
    assert contains("He died in New York.", "new york")
    assert not contains("He died in Newark, York.", "New York") and not contains("Yorkshire", "York")
    assert not contains("anything", "the")

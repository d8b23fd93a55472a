"""Data sets of questions: read by their cards' schemas from files of every format."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troupe.envs.datasets import DataError
from troupe.envs.math import sources
from troupe.envs.math.sources import (
    Aime24,
    Aime25,
    Dapo,
    DeepScaleR,
    Gsm8k,
    OlympiadBench,
    Polaris,
    Question,
    QuestionSource,
)

HEAD = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
TAIL = '\n\nRemember to put your answer on its own line after "Answer:".'


def dapo(question: str, answer: object) -> dict[str, Any]:
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": HEAD + question + TAIL, "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
    }


ROWS: dict[type[QuestionSource], tuple[dict[str, Any], Question]] = {
    Polaris: (
        {"problem": "What is 2 + 3?", "answer": "5", "difficulty": "3/8"},
        Question("What is 2 + 3?", "5"),
    ),
    DeepScaleR: (
        {"problem": "Half of 3?", "answer": "\\frac{3}{2}", "solution": "Divide."},
        Question("Half of 3?", "\\frac{3}{2}"),
    ),
    Dapo: (dapo("Find $m+n$.\n\nWith care.", "34"), Question("Find $m+n$.\n\nWith care.", "34")),
    Aime24: (
        {"id": 60, "problem": "Find $n$.", "solution": "It is.", "answer": "025", "url": "https://…", "year": "2024"},
        Question("Find $n$.", "025"),
    ),
    Aime25: ({"problem": "Find $k$.", "answer": "70", "id": "0"}, Question("Find $k$.", "70")),
    OlympiadBench: (
        {
            "id": 1606,
            "question": "Find all $x$.",
            "solution": ["Try."],
            "final_answer": ["$69$,$84$"],
            "context": None,
            "is_multiple_answer": True,
            "unit": None,
            "answer_type": "Numerical",
            "error": None,
        },
        Question("Find all $x$.", "$69$,$84$", several=True),
    ),
    Gsm8k: (
        {"question": "How many eggs?", "answer": "16 - 7 = <<16-7=9>>9 eggs.\nTwice: 1,018.\n#### 1,018"},
        Question("How many eggs?", "1,018"),
    ),
}


def load(source: QuestionSource) -> list[Question]:
    return list(source.items(Counter()))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """``written(rows, suffix)``: the path of a file of these rows."""

    def write_rows(rows: list[dict[str, Any]], suffix: str = ".jsonl") -> str:
        path = tmp_path / f"data{len(list(tmp_path.iterdir()))}{suffix}"
        if suffix == ".parquet":
            import pandas

            pandas.DataFrame(rows).to_parquet(path)
        elif suffix == ".json":
            path.write_text(json.dumps(rows))
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write_rows


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's cache of data sets."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    monkeypatch.setattr(datasets.utils.logging, "_tqdm_active", False, raising=False)


@pytest.mark.parametrize("source", ROWS, ids=lambda source: source.__name__)
def test_every_set_is_read_by_its_schema(source: type[QuestionSource], write: Callable[..., str]) -> None:
    row, question = ROWS[source]
    assert load(source(write([row, row]))) == [question, question]


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
@pytest.mark.parametrize("source", [Dapo, OlympiadBench], ids=lambda source: source.__name__)
def test_files_of_other_kinds(source: type[QuestionSource], suffix: str, write: Callable[..., str]) -> None:
    row, question = ROWS[source]
    assert load(source(write([row], suffix))) == [question]


def test_every_source_is_tried() -> None:
    classes = {item for item in vars(sources).values() if isinstance(item, type) and issubclass(item, QuestionSource)}
    assert {source for source in classes if not source.__name__.startswith("_")} - {QuestionSource} == ROWS.keys()


def test_hub_names_go_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    calls = []

    def load_dataset(*names: object, **more: object) -> Any:
        calls.append((*names, more["split"], more["revision"]))
        return datasets.Dataset.from_list([ROWS[Gsm8k][0]])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert load(Gsm8k(revision="abc")) == [ROWS[Gsm8k][1]]
    assert calls == [("openai/gsm8k", "main", "test", "abc")]


WRONG: list[tuple[type[QuestionSource], dict[str, Any], str]] = [
    (Polaris, {"problem": "?", "solution": "5"}, r"has no column answer; its columns are problem, solution"),
    (Polaris, {"problem": "?", "answer": " "}, r"row 1, column answer: it is empty"),
    (Polaris, {"problem": "", "answer": "5"}, r"row 1, column problem: it is empty"),
    (Dapo, dapo("?", 5), r"row 1, column reward_model: expected text as ground_truth, got 5"),
    (
        Dapo,
        {**dapo("?", "5"), "prompt": [{"role": "system"}]},
        r"row 1, column prompt: expected 1 message",
    ),
    (
        OlympiadBench,
        {**ROWS[OlympiadBench][0], "final_answer": []},
        r"row 1, column final_answer: expected texts",
    ),
    (Gsm8k, {"question": "?", "answer": "5"}, r"row 1, column answer: it has no ####"),
]


@pytest.mark.parametrize(("source", "row", "message"), WRONG, ids=range(len(WRONG)))
def test_errors_name_file_row_and_column(
    source: type[QuestionSource], row: dict[str, Any], message: str, write: Callable[..., str]
) -> None:
    good = ROWS[source][0]
    rows = [row, row] if "no column" in message else [good, row]
    if source is Dapo and "got 5" in message:
        rows = [row, row]
        message = message.replace("row 1", "row 0")
    path = write(rows)
    with pytest.raises(DataError, match=message) as caught:
        load(source(path))
    assert path in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: no such file"):
        load(Polaris(str(tmp_path / "nowhere.jsonl")))


def test_the_key_ignores_case_blanks_punctuation_and_markup() -> None:
    same = ["Find $\\frac{a}{b}$ if a=2.", "find  $\\dfrac{a}{b}$ if $a = 2$", "Find $\\frac{a}{b}$, if a=2!"]
    assert len({Question(text, "1").key for text in same}) == 1
    assert (
        len({Question(text, "1").key for text in (same[0], "Find $\\frac{a}{b}$ if a=3.", "Find a-b", "Find a+b")}) == 4
    )

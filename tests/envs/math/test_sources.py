"""Data sets of questions: read by their cards' schemas from files of every format."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
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
    Math,
    Math500,
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
    Math: (
        {
            "problem": "What is $\\frac12+1$?",
            "level": "Level 1",
            "type": "Prealgebra",
            "solution": "Not \\boxed{1}, but $\\boxed{\\frac{3}{2}}$.",
        },
        Question("What is $\\frac12+1$?", "\\frac{3}{2}"),
    ),
    Math500: (
        {
            "problem": "Find all $x$ with $x^2=4$.",
            "solution": "$\\boxed{2,-2}$",
            "answer": "2,-2",
            "subject": "Algebra",
            "level": 2,
            "unique_id": "test/algebra/1.json",
        },
        Question("Find all $x$ with $x^2=4$.", "2,-2", several=True),
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
@pytest.mark.parametrize("source", [Dapo, Math, OlympiadBench], ids=lambda source: source.__name__)
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
    without_files = SimpleNamespace(config=SimpleNamespace(data_files=None), cache_dir="nowhere")
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_, **__: without_files)
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


DIFFERENT = [
    # questions that are not the same
    ("What is 1.5 times 4?", "What is 15 times 4?"),
    ("What is .5 times 4?", "What is 5 times 4?"),
    ("What is 1,5 times 4?", "What is 15 times 4?"),
    ("Add 12 and 3.", "Add 1 and 23."),
    ("Add 1, 2 and 3.", "Add 12 and 3."),
    ("Simplify $|x|$.", "Simplify $x$."),
    ("Find 5% of 8.", "Find 5 of 8."),
    ("Expand $(a+b)c$.", "Expand $a+bc$."),
    ("How long is $[0,1)$?", "How long is $(0,1)$?"),
    ("What is $5!$?", "What is $5$?"),
    ("What is $(n-1)!$ here?", "What is $(n-1)$ here?"),
    ("What is $\\frac{a}{bc}$?", "What is $\\frac{ab}{c}$?"),
    ("What is $\\frac{1}{23}$?", "What is $\\frac{12}{3}$?"),
    ("What is $x^{2n}$?", "What is $x^2n$?"),
    ("Solve x ≤ 5.", "Solve x ≥ 5."),
    ("What is √2 + 1?", "What is 2 + 1?"),
    ("What is $f'(x)$?", "What is $f(x)$?"),
    ("The ratio is 3:4.", "The ratio is 34."),
    ("What is $a_{12}$?", "What is $a_1 2$?"),
    ("$\\{1\\}$", "$\\{1,1\\}$"),
]
ALIKE = [
    ("What is 1.5 times 4?", "what is $1.5$ times 4 ?"),
    ("Is $(1, 2)$ on it?", "Is $\\left(1,2\\right)$ on it"),
    ("Ann's car, a \u201cVW\u201d, is new.", "Anns car: a VW is new!"),
    ("Find $x^{2}$ of it.", "Find $x^2$ of it."),
    ("So 1, 2 and 3...", "So 1,2, and 3"),
    ("Find $5 \u2212 x$.", "Find $5-x$."),
    ("It is 5. What is 6?", "It is 5; what is 6"),
    ("Oh no! $12\\text{ cm}$", "Oh no, $12$ cm"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_the_key_has_what_changes_the_meaning(one: str, other: str) -> None:
    assert Question(one, "1").key != Question(other, "1").key


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_the_key_has_no_markup_and_no_punctuation_of_sentences(one: str, other: str) -> None:
    assert Question(one, "1").key == Question(other, "1").key


# ---- MATH -----------------------------------------------------------------------------------------------------------


def math_row(level: object, kind: str, solution: str = "\\boxed{1}") -> dict[str, Any]:
    return {"problem": f"{kind} {level}?", "level": level, "type": kind, "solution": solution}


def test_math_by_level_and_subject(write: Callable[..., str]) -> None:
    rows = [math_row(f"Level {level}", kind) for level in (1, 5) for kind in ("Algebra", "Geometry")]
    path, counts = write([*rows, math_row("Level ?", "Geometry")]), Counter[str]()
    texts = [question.text for question in Math(path, levels=[5], types=["Geometry"]).items(counts)]
    assert texts == ["Geometry Level 5?"]
    assert counts == {"rows left out: another level": 3, "rows left out: another type": 1}
    assert len(load(Math(path))) == 5


def test_a_solution_without_a_box_is_an_error(write: Callable[..., str]) -> None:
    path = write([math_row("Level 1", "Algebra", "So it is 7.")])
    with pytest.raises(DataError, match=r"row 0, column solution: it has no \\boxed answer"):
        load(Math(path))


@pytest.mark.parametrize("row", [{"level": 1}, {"solution": None}, {"type": 3}])
def test_math_with_cells_of_another_kind_is_an_error(row: dict[str, Any], write: Callable[..., str]) -> None:
    with pytest.raises(DataError, match=next(iter(row))):
        load(Math(write([{**math_row("Level 1", "Algebra"), **row}])))


SEVERAL = [
    ("1,-2", True),
    ("\\frac{1}{2}, 3", True),
    ("(1,2)", False),
    ("[0,\\infty)", False),
    ("\\{1,2\\}", False),
    ("1,000", False),
    ("10{,}000", False),
    ("12,\\!345", False),
    ("(1,2), (3,4)", True),
]


@pytest.mark.parametrize(("answer", "several"), SEVERAL)
def test_commas_in_answers_of_math(answer: str, several: bool, write: Callable[..., str]) -> None:
    (question,) = load(Math(write([math_row("Level 1", "Algebra", f"\\boxed{{{answer}}}")])))
    assert (question.answer, question.several) == (answer, several)

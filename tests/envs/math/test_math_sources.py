"""Sets of questions: read by their cards' schemas from files of every kind, in disjoint splits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from troupe.envs.math import sources
from troupe.envs.math.collection import Collection
from troupe.envs.math.sources import Aime24, Aime25, Dapo, DeepScaleR, Gsm8k, OlympiadBench, Polaris, Question, Source
from troupe.envs.rows import DataError

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


ROWS: dict[type[Source], tuple[dict[str, Any], Question]] = {
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


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    """``written(rows, suffix)``: the path of a file of these rows."""

    def write(rows: list[dict[str, Any]], suffix: str = ".jsonl") -> str:
        path = tmp_path / f"data{len(list(tmp_path.iterdir()))}{suffix}"
        if suffix == ".parquet":
            import pandas

            pandas.DataFrame(rows).to_parquet(path)
        elif suffix == ".json":
            path.write_text(json.dumps(rows))
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's cache of data sets."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    monkeypatch.setattr(datasets.utils.logging, "_tqdm_active", False, raising=False)


@pytest.mark.parametrize("source", ROWS, ids=lambda source: source.__name__)
def test_every_set_is_read_by_its_schema(source: type[Source], written: Callable[..., str]) -> None:
    row, question = ROWS[source]
    assert source(written([row, row])).load() == [question, question]


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
@pytest.mark.parametrize("source", [Dapo, OlympiadBench], ids=lambda source: source.__name__)
def test_files_of_other_kinds(source: type[Source], suffix: str, written: Callable[..., str]) -> None:
    row, question = ROWS[source]
    assert source(written([row], suffix)).load() == [question]


def test_every_source_is_tried() -> None:
    found = {found for found in vars(sources).values() if isinstance(found, type) and issubclass(found, Source)}
    assert {source for source in found if not source.__name__.startswith("_")} - {Source} == ROWS.keys()


def test_hub_names_go_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def load(*names: object, **more: object) -> Any:
        asked.append((*names, more["split"], more["revision"]))
        return datasets.Dataset.from_list([ROWS[Gsm8k][0]])

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert Gsm8k(revision="abc").load() == [ROWS[Gsm8k][1]]
    assert asked == [("openai/gsm8k", "main", "test", "abc")]


WRONG: list[tuple[type[Source], dict[str, Any], str]] = [
    (Polaris, {"problem": "?", "solution": "5"}, r"has no column answer; it has problem, solution"),
    (Polaris, {"problem": "?", "answer": " "}, r"row 1: column answer is empty"),
    (Polaris, {"problem": "", "answer": "5"}, r"row 1: column problem is empty"),
    (Dapo, dapo("?", 5), r"row 1: column reward_model: ground_truth is 5, expected text"),
    (Dapo, {**dapo("?", "5"), "prompt": [{"role": "system", "content": "?"}]}, r"row 1: column prompt has 0 messages"),
    (OlympiadBench, {**ROWS[OlympiadBench][0], "final_answer": []}, r"row 1: column final_answer is \[\]"),
    (Gsm8k, {"question": "?", "answer": "5"}, r"row 1: column answer has no ####"),
]


@pytest.mark.parametrize(("source", "row", "message"), WRONG, ids=range(len(WRONG)))
def test_errors_name_file_row_and_column(
    source: type[Source], row: dict[str, Any], message: str, written: Callable[..., str]
) -> None:
    good = ROWS[source][0]
    rows = [row, row] if "no column" in message else [good, row]
    if source is Dapo and "is 5" in message:
        rows = [row, row]
        message = message.replace("row 1", "row 0")
    path = written(rows)
    with pytest.raises(DataError, match=message) as caught:
        source(path).load()
    assert path in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: no such file"):
        Polaris(str(tmp_path / "nowhere.jsonl")).load()


# ---- splits ---------------------------------------------------------------------------------------------------------


class Fixed(Source):
    """Questions given by hand."""

    hub = "fixed"
    columns: ClassVar[dict] = {}

    def __init__(self, *questions: tuple[str, str]) -> None:
        super().__init__()
        self.questions = [Question(*question) for question in questions]

    def load(self) -> list[Question]:
        return self.questions

    def _question(self, row: Any) -> Question:
        raise NotImplementedError


def many(first: int, last: int) -> list[tuple[str, str]]:
    return [(f"What is {n} + 1?", str(n + 1)) for n in range(first, last)]


def test_the_same_question_in_another_dress() -> None:
    same = ["Find $\\frac{a}{b}$ if a=2.", "find  $\\dfrac{a}{b}$ if $a = 2$", "Find $\\frac{a}{b}$, if a=2!"]
    assert len({Question(text, "1").key for text in same}) == 1
    assert (
        len({Question(text, "1").key for text in (same[0], "Find $\\frac{a}{b}$ if a=3.", "Find a-b", "Find a+b")}) == 4
    )


def test_splits_are_disjoint_and_what_is_left_out_is_counted() -> None:
    train = Fixed(*many(0, 60), ("WHAT is 7+1 ?", "8"), ("What is 9 + 1?", "11"), ("Trick?", "1"), ("trick", "2"))
    found = Collection(
        "math", train=[train], validation=[Fixed(*many(50, 70))], test=[Fixed(*many(0, 5), *many(65, 75))]
    )
    assert found.counts == {
        "train_repeated": 3,
        "train_with_two_answers": 2,
        "validation_repeated": 0,
        "validation_with_two_answers": 0,
        "test_repeated": 0,
        "test_with_two_answers": 0,
        "train_also_in_test": 5,
        "validation_also_in_test": 5,
        "train_also_in_validation": 10,
        "train": 44,
        "validation": 15,
        "test": 15,
    }
    ids = [
        {task.task_id for task in found.tasks(split, found.counts[split], 0)}
        for split in ("train", "validation", "test")
    ]
    assert len(set.union(*ids)) == 44 + 15 + 15


def test_a_share_of_training_is_kept_for_validation() -> None:
    found = Collection("math", train=[Fixed(*many(0, 400))], test=[Fixed(*many(400, 401))], validation_share=0.1)
    assert found.counts["train"] + found.counts["validation"] == 400 and 20 < found.counts["validation"] < 60
    more = Collection("math", train=[Fixed(*many(0, 500))], test=[Fixed(*many(500, 501))], validation_share=0.1)
    kept = {task.task_id for task in found.tasks("validation", found.counts["validation"], 1)}
    assert kept <= {task.task_id for task in more.tasks("validation", more.counts["validation"], 0)}


def test_more_tasks_than_there_are() -> None:
    found = Collection("math", train=[Fixed(*many(0, 400))], test=[Fixed(*many(400, 403))])
    assert found.tasks("test", 3, 0) != found.tasks("test", 3, 1)
    assert found.tasks("test", 2, 5) == found.tasks("test", 2, 5)
    with pytest.raises(ValueError, match="found only 3 of 4 different test tasks"):
        found.tasks("test", 4, 0)
    with pytest.raises(ValueError, match=r"env\.train: no question is left"):
        Collection("math", train=[Fixed(*many(0, 2))], test=[Fixed(*many(0, 2))], validation=[Fixed(*many(3, 4))])
    with pytest.raises(ValueError, match="validation_share must be in"):
        Collection("math", train=[Fixed(*many(0, 2))], test=[Fixed(*many(0, 2))], validation_share=0.0)


def test_a_set_that_the_hub_does_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    from huggingface_hub import constants

    for place in (datasets.config, constants):
        monkeypatch.setattr(place, "HF_HUB_OFFLINE", True)
    message = r"^env\.test: nobody/nothing cannot be loaded from the hub: .* Give a local file of the same columns"
    with pytest.raises(DataError, match=message):
        Collection("math", train=[Fixed(*many(0, 2))], test=[Polaris("nobody/nothing")])

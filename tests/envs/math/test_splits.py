"""Questions in splits."""

import pytest

from troupe.envs.datasets import DataSplits
from troupe.envs.math.sources import Question, load_questions

from .conftest import Fixed

Pairs = list[tuple[str, str]]


def many(first: int, last: int) -> Pairs:
    return [(f"What is {n} + 1?", str(n + 1)) for n in range(first, last)]


def questions(train: Pairs, test: Pairs, validation: Pairs | None = None, share: float = 0.02) -> DataSplits[Question]:
    sources = {
        "train": [Fixed(*train)],
        "test": [Fixed(*test)],
        "validation": [Fixed(*validation)] if validation else [],
    }
    return load_questions("math", sources, validation_share=share)  # type: ignore[arg-type]


def test_a_share_of_training_is_held_out_for_validation() -> None:
    few, more = (questions(many(0, count), many(count, count + 1), share=0.1) for count in (400, 500))
    assert few.counts["train"] + few.counts["validation"] == 400 and 20 < few.counts["validation"] < 60
    assert few.items["validation"].keys() <= more.items["validation"].keys()


def test_draws_do_not_depend_on_the_order_of_the_files() -> None:
    forward, backward = questions(many(0, 400), many(400, 403)), questions(many(0, 400)[::-1], many(400, 403))
    assert forward.tasks("train", 50, 0) == backward.tasks("train", 50, 0) != forward.tasks("train", 50, 1)


def test_a_split_without_questions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"env\.train: no question is left"):
        questions(many(0, 2), many(0, 2), many(3, 4))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_of_validation_is_checked(share: float) -> None:
    with pytest.raises(ValueError, match=r"env\.validation_share must be in \(0, 1\)"):
        questions(many(0, 2), many(3, 4), share=share)

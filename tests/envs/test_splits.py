"""The split of a task, by its content."""

from collections import Counter

import pytest

from troupe.envs.splits import content_digest, split_of


def test_a_digest_is_stable() -> None:
    """Splits and task ids depend on it."""
    assert content_digest("( a + b ) + c") == "ae8a143451f8"
    assert len(content_digest("a", size=8)) == 16 and content_digest("a") != content_digest("b")


def test_the_shares_of_the_splits() -> None:
    counts = Counter(split_of(content_digest(str(number))) for number in range(5000))
    shares = {split: count / 5000 for split, count in counts.items()}
    assert shares == pytest.approx({"train": 0.8, "validation": 0.1, "test": 0.1}, abs=0.015)

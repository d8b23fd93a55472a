"""Questions by hand."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from troupe.envs.math.sources import Question, QuestionSource


class Fixed(QuestionSource):
    """A data set of (question, answer) by hand."""

    hub = "fixed"
    cells = {}  # noqa: RUF012 (no row is read)

    def __init__(self, *questions: tuple[str, str]) -> None:
        super().__init__()
        self.questions = [Question(*question) for question in questions]

    def items(self, counts: Counter[str]) -> Iterator[Question]:
        yield from self.questions

    def item(self, row: Mapping[str, Any]) -> Question:
        raise NotImplementedError

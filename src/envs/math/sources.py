"""Published data sets of questions: one class each, for hub names and local files alike.

Training: :class:`Polaris`, :class:`Dapo`, :class:`DeepScaleR`, :class:`Math`.  Evaluation: :class:`Math500`,
:class:`Aime24`, :class:`Aime25`, :class:`OlympiadBench`, :class:`Gsm8k`.  The columns are those of the dataset cards on
the hub.

Questions of several data sets in disjoint splits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...experience import Split
from ..datasets import CellError, Columns, DataSplits, PublishedSource, UnusableRow, load_splits
from ..splits import content_digest
from .answers import boxed_answers

_MARKUP = (
    (r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\(?:left|right|[,;!: ])", " "),
    (r"\\[dt]frac", "frac"),
    (r"(?<!\\)\{\s*(\w|\d+)\s*\}", r" \1 "),  # x^{2} is x^2
    (r"[\u2212\u2013]", "-"),
    (r"!\s*$|(?<=[^\W\d_]{2})!|(?<=\s)!|'(?![('])", ""),  # neither a factorial nor a derivative
)
"""What makes no other question, and its replacement."""
_TOKEN = re.compile(r"\d+(?:\.\d+)?|(?<![\d.])\.\d+|[^\s\d.,;:?$&~`\"\\\u2018-\u201f]")
"""A number, a letter or a sign; not the punctuation of sentences."""


@dataclass(frozen=True)
class Question:
    """A question with its answer as text; ``several``: it asks for several answers, separated by commas."""

    text: str
    answer: str
    several: bool = False

    @property
    def key(self) -> str:
        """Equal for questions that differ in case, blanks, markup or the punctuation of sentences alone.

        Numbers, brackets and signs make questions different: 1.5 is not 15, nor |x| x.
        """
        plain = unicodedata.normalize("NFKC", self.text).casefold()
        for pattern, replacement in _MARKUP:
            plain = re.sub(pattern, replacement, plain)
        return content_digest(" ".join(_TOKEN.findall(plain)), size=8)

    @property
    def task_data(self) -> Mapping[str, Any]:
        return {"question": self.text, "answer": self.answer, "several": self.several}

    def contradicts(self, other: Question) -> bool:
        """Whether the two have different answers."""
        return self.answer != other.answer


class QuestionSource(PublishedSource[Question]):
    """A data set of questions."""


class _ProblemAndAnswer(QuestionSource):
    """Data sets with a ``problem`` and an ``answer``."""

    cells: ClassVar[Columns] = {"problem": str, "answer": (str, int)}

    def item(self, row: Mapping[str, Any]) -> Question:
        return _question(row["problem"], str(row["answer"]), "problem", "answer")


class Polaris(_ProblemAndAnswer):
    """Polaris: 53,291 problems, by difficulty for a 7B model."""

    hub = "POLARIS-Project/Polaris-Dataset-53K"


class DeepScaleR(_ProblemAndAnswer):
    """DeepScaleR-Preview: 40,315 problems of AIME, AMC, Omni-MATH and Still."""

    hub = "agentica-org/DeepScaleR-Preview-Dataset"


class Aime24(_ProblemAndAnswer):
    """The 30 problems of AIME 2024."""

    hub = "HuggingFaceH4/aime_2024"


class Aime25(_ProblemAndAnswer):
    """The 30 problems of AIME 2025."""

    hub, split = "math-ai/aime25", "test"


class Dapo(QuestionSource):
    """DAPO-Math-17k: 17,398 different problems, each many times over, wrapped into an instruction that is taken off."""

    hub = "BytedTsinghua-SIA/DAPO-Math-17k"
    cells: ClassVar[Columns] = {"prompt": list, "reward_model": dict}

    _HEAD = re.compile(r"^Solve the following math problem step by step\..*?\(without quotes\).*?\n\n", re.DOTALL)
    _TAIL = re.compile(r"\n\nRemember to put your answer on its own line after \"Answer:\"\.?\s*$")

    def item(self, row: Mapping[str, Any]) -> Question:
        messages = [message["content"] for message in row["prompt"] if message.get("role") == "user"]
        if len(messages) != 1:
            raise CellError("prompt", f"expected 1 message of the user, got {len(messages)}")
        answer = row["reward_model"].get("ground_truth")
        if not isinstance(answer, str):
            raise CellError("reward_model", f"expected text as ground_truth, got {answer!r:.40}")
        text = self._TAIL.sub("", self._HEAD.sub("", messages[0]))
        return _question(text, answer, "prompt", "reward_model.ground_truth")


class Math(QuestionSource):
    r"""MATH (Hendrycks et al., arXiv 2103.03874): competition problems, 7,500 to train and 5,000 to test, in a
    configuration for each of seven subjects.  The answer is the last box of the solution.

    ``levels`` and ``types`` choose problems by difficulty ("Level 1" to "Level 5") and subject; None: all.  The test
    split has the 500 problems of :class:`Math500`.
    """

    hub, config = "EleutherAI/hendrycks_math", "algebra"
    cells: ClassVar[Columns] = {"problem": str, "level": str, "type": str, "solution": str}

    def __init__(
        self,
        path: str | None = None,
        *,
        levels: Sequence[int] | None = None,
        types: Sequence[str] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(path, **common)
        self._levels = None if levels is None else {f"Level {level}" for level in levels}
        self._types = None if types is None else set(types)

    def item(self, row: Mapping[str, Any]) -> Question:
        if self._levels is not None and row["level"] not in self._levels:
            raise UnusableRow("another level")
        if self._types is not None and row["type"] not in self._types:
            raise UnusableRow("another type")
        answers = boxed_answers(row["solution"])
        if not answers:
            raise CellError("solution", "it has no \\boxed answer")
        return _competition(row["problem"], answers[-1], "solution")


class Math500(QuestionSource):
    """MATH-500: the problems of MATH's test split that PRM800K leaves for evaluation (arXiv 2305.20050)."""

    hub, split = "HuggingFaceH4/MATH-500", "test"
    cells: ClassVar[Columns] = {"problem": str, "answer": str}

    def item(self, row: Mapping[str, Any]) -> Question:
        return _competition(row["problem"], row["answer"], "answer")


class OlympiadBench(QuestionSource):
    """OlympiadBench's open-ended mathematics in English: 674 competition problems."""

    hub, config = "Hothan/OlympiadBench", "OE_TO_maths_en_COMP"
    cells: ClassVar[Columns] = {"question": str, "final_answer": list, "is_multiple_answer": bool}

    def item(self, row: Mapping[str, Any]) -> Question:
        answers = row["final_answer"]
        if not answers or not all(isinstance(answer, str) for answer in answers):
            raise CellError("final_answer", f"expected texts, got {answers!r:.60}")
        several = bool(row["is_multiple_answer"]) or len(answers) > 1
        question = _question(row["question"], ", ".join(answers), "question", "final_answer")
        return replace(question, several=several)


class Gsm8k(QuestionSource):
    """GSM8K: grade-school problems; the number after #### is the answer."""

    hub, config, split = "openai/gsm8k", "main", "test"
    cells: ClassVar[Columns] = {"question": str, "answer": str}

    def item(self, row: Mapping[str, Any]) -> Question:
        _, mark, answer = row["answer"].rpartition("####")
        if not mark:
            raise CellError("answer", "it has no ####")
        return _question(row["question"], answer, "question", "answer")


def _competition(problem: str, answer: str, column: str) -> Question:
    """A question of MATH; several answers are separated by commas outside of brackets that separate no thousands."""
    bare = answer
    while (inner := re.sub(r"[(\[{][^()\[\]{}]*[)\]}]", "", bare)) != bare:
        bare = inner
    several = re.search(r",(?!\\?!?\s*\d{3}(?!\d))", bare) is not None
    return replace(_question(problem, answer, "problem", column), several=several)


def _question(text: str, answer: str, *columns: str) -> Question:
    """A question and its answer; neither may be empty."""
    for content, column in zip((text, answer), columns, strict=True):
        if not content.strip():
            raise CellError(column, "it is empty")
    return Question(text.strip(), answer.strip())


def load_questions(
    name: str, sources: Mapping[Split, Sequence[QuestionSource]], *, validation_share: float
) -> DataSplits[Question]:
    """The questions of ``sources``, as tasks of the world ``name``.

    Without sources for validation, a share ``validation_share`` of the training questions, decided by their content,
    is held out for it.

    Raises :class:`..datasets.table.DataError` for sources that are not as their cards say, and ``ValueError`` for a
    split without questions, unless neither it nor training has data sets.
    """
    if not 0 < validation_share < 1:
        raise ValueError(f"env.validation_share must be in (0, 1), got {validation_share}")

    def split_of(key: str) -> Split:
        return "validation" if int(key, 16) % 10_000 < 10_000 * validation_share else "train"

    splits = load_splits(name, sources, split_of)
    for split, questions in splits.items.items():
        if not questions and (sources[split] or sources["train"]):
            raise ValueError(f"env.{split}: no question is left; {dict(splits.counts)}")
        splits.items[split] = dict(sorted(questions.items()))  # a draw does not depend on the order of the files
    return splits

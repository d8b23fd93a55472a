"""Published sets of questions: one class each, of hub names and local files alike.

Training: :class:`Polaris`, :class:`Dapo`, :class:`DeepScaleR`.  Evaluation: :class:`Aime24`, :class:`Aime25`,
:class:`OlympiadBench`, :class:`Gsm8k`.  The columns are those of the dataset cards on the hub.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar

from ..rows import Columns, DataError, Table, rows


@dataclass(frozen=True)
class Question:
    """A question with its answer as it is written; ``several``: it asks for several answers, apart by commas."""

    text: str
    answer: str
    several: bool = False

    @property
    def key(self) -> str:
        """A digest of the question that does not tell apart what differs in case, blanks, signs or markup alone."""
        text = unicodedata.normalize("NFKC", self.text)
        plain = re.sub(r"\\(?:text|mathrm|left|right|[dt]frac|frac|[,;!: ])", "", text)
        letters = "".join(sign for sign in plain.casefold() if sign.isalnum() or sign in "+-*/^=<>")
        return blake2b(letters.encode(), digest_size=8).hexdigest()


class Source(ABC):
    """A set of questions.

    ``path`` is a local file (.json, .jsonl, .parquet, .csv) or a name on the hub; ``split``, ``config`` and
    ``revision`` are the hub's.
    """

    hub: str
    """The set's name on the hub."""
    config: str | None = None
    split = "train"
    columns: ClassVar[Columns]

    def __init__(
        self,
        path: str | None = None,
        *,
        split: str | None = None,
        config: str | None = None,
        revision: str | None = None,
    ) -> None:
        self.table = Table(path or self.hub, split or self.split, config or self.config, revision)

    def load(self) -> list[Question]:
        """All questions, in the order of the rows.

        Raises :class:`~troupe.envs.rows.DataError`, with the file, the row and the column, where something else is
        found than the set's card says.
        """
        found = []
        for index, row in enumerate(rows(self.table, self.columns)):
            try:
                question = self._question(row)
            except ValueError as error:
                raise DataError(f"{self.table.path}, row {index}: {error}") from error
            found.append(question)
        return found

    @abstractmethod
    def _question(self, row: Mapping[str, Any]) -> Question:
        """The question of a row; raises ``ValueError``, naming the column, where it has none."""


class _ProblemAndAnswer(Source):
    """Sets with a ``problem`` and an ``answer``."""

    columns: ClassVar[Columns] = {"problem": str, "answer": (str, int)}

    def _question(self, row: Mapping[str, Any]) -> Question:
        return _checked(row["problem"], str(row["answer"]), "problem", "answer")


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


class Dapo(Source):
    """DAPO-Math-17k: 17,398 different problems, each many times over, wrapped into an instruction that is taken off."""

    hub = "BytedTsinghua-SIA/DAPO-Math-17k"
    columns: ClassVar[Columns] = {"prompt": list, "reward_model": dict}

    _HEAD = re.compile(r"^Solve the following math problem step by step\..*?\(without quotes\).*?\n\n", re.DOTALL)
    _TAIL = re.compile(r"\n\nRemember to put your answer on its own line after \"Answer:\"\.?\s*$")

    def _question(self, row: Mapping[str, Any]) -> Question:
        said = [message["content"] for message in row["prompt"] if message.get("role") == "user"]
        if len(said) != 1:
            raise ValueError(f"column prompt has {len(said)} messages of the user, expected 1")
        answer = row["reward_model"].get("ground_truth")
        if not isinstance(answer, str):
            raise ValueError(f"column reward_model: ground_truth is {answer!r:.40}, expected text")
        text = self._TAIL.sub("", self._HEAD.sub("", said[0]))
        return _checked(text, answer, "prompt", "reward_model.ground_truth")


class OlympiadBench(Source):
    """OlympiadBench's open-ended mathematics in English: 674 competition problems."""

    hub, config = "Hothan/OlympiadBench", "OE_TO_maths_en_COMP"
    columns: ClassVar[Columns] = {"question": str, "final_answer": list, "is_multiple_answer": bool}

    def _question(self, row: Mapping[str, Any]) -> Question:
        answers = row["final_answer"]
        if not answers or not all(isinstance(answer, str) for answer in answers):
            raise ValueError(f"column final_answer is {answers!r:.60}, expected texts")
        several = bool(row["is_multiple_answer"]) or len(answers) > 1
        found = _checked(row["question"], ", ".join(answers), "question", "final_answer")
        return Question(found.text, found.answer, several)


class Gsm8k(Source):
    """GSM8K: grade-school problems; the number after #### is the answer."""

    hub, config, split = "openai/gsm8k", "main", "test"
    columns: ClassVar[Columns] = {"question": str, "answer": str}

    def _question(self, row: Mapping[str, Any]) -> Question:
        _, marked, answer = row["answer"].rpartition("####")
        if not marked:
            raise ValueError("column answer has no ####")
        return _checked(row["question"], answer, "question", "answer")


def _checked(text: str, answer: str, *names: str) -> Question:
    """A question that says something, with an answer."""
    for content, name in zip((text, answer), names, strict=True):
        if not content.strip():
            raise ValueError(f"column {name} is empty")
    return Question(text.strip(), answer.strip())

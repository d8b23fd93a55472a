"""What tests of several rooms share: the worlds' words, and a Sokoban board that two pushes to the right solve."""

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.sokoban import Sokoban
from troupe.envs.two_roles import vocabulary
from troupe.experience import Task
from troupe.models.laptop import build_tokenizer


@pytest.fixture(scope="session")
def words() -> PreTrainedTokenizerFast:
    """The tokenizer of the laptop scale: one token a word."""
    return build_tokenizer([*vocabulary(10), "plan_path", "sokoban"])


@pytest.fixture(scope="session")
def board() -> Task:
    """``######`` / ``#    #`` / ``#w# g#`` with worker 2,1, box 2,2 and goal 2,4 in an empty room: R R solves it."""
    walls = Sokoban().walls
    cell = {"worker": 2 * 6 + 1, "box": 2 * 6 + 2, "goal": 2 * 6 + 4}
    data = {"walls": walls, "worker": cell["worker"], "boxes": frozenset({cell["box"]})}
    return Task("board", "train", data | {"goals": frozenset({cell["goal"]})})

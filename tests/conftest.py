"""What tests of several rooms share: the worlds' words, a board, and configurations as the command composes them."""

from collections.abc import Callable, Iterator

import pytest
from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict
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
    """Worker 2,1, box 2,2 and goal 2,4 in an empty Sokoban room of size 6: R R solves it."""
    cell = {"worker": 2 * 6 + 1, "box": 2 * 6 + 2, "goal": 2 * 6 + 4}
    pieces = {"boxes": frozenset({cell["box"]}), "goals": frozenset({cell["goal"]})}
    return Task("board", "train", {"walls": Sokoban().walls, "worker": cell["worker"], **pieces})


@pytest.fixture(scope="session")
def composed() -> Iterator[Callable[..., DictConfig]]:
    """``composed("experiment=...", "key=value", ...)``: what ``troupe`` hands to ``build``."""

    def composition(*overrides: str) -> DictConfig:
        with initialize_config_module("troupe.configs", version_base="1.3"):
            cfg = compose("train", overrides=list(overrides), return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        with open_dict(cfg):
            del cfg["hydra"]
        return cfg

    yield composition
    HydraConfig.instance().cfg = None

"""Mathematics: a tool agent computes, a reasoner answers."""

from .arithmetic import Arithmetic
from .questions import MathQuestions
from .sources import Aime24, Aime25, Dapo, DeepScaleR, Gsm8k, OlympiadBench, Polaris
from .word_problems import WordProblems

__all__ = [
    "Aime24",
    "Aime25",
    "Arithmetic",
    "Dapo",
    "DeepScaleR",
    "Gsm8k",
    "MathQuestions",
    "OlympiadBench",
    "Polaris",
    "WordProblems",
]

"""Mathematics: a tool agent computes, a reasoner answers."""

from .arithmetic import Arithmetic
from .ensemble import Ensemble
from .questions import MathQuestions
from .sources import Aime24, Aime25, Dapo, DeepScaleR, Gsm8k, Math, Math500, OlympiadBench, Polaris
from .word_problems import WordProblems

__all__ = [
    "Aime24",
    "Aime25",
    "Arithmetic",
    "Dapo",
    "DeepScaleR",
    "Ensemble",
    "Gsm8k",
    "Math",
    "Math500",
    "MathQuestions",
    "OlympiadBench",
    "Polaris",
    "WordProblems",
]

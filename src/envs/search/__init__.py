"""Search: a search agent queries an index, a reasoner answers."""

from .fact_search import FactSearch
from .questions import QuestionSearch
from .sources import Bamboogle, HotpotQA, MuSiQue, NaturalQuestions, TwoWikiMultiHopQA

__all__ = [
    "Bamboogle",
    "FactSearch",
    "HotpotQA",
    "MuSiQue",
    "NaturalQuestions",
    "QuestionSearch",
    "TwoWikiMultiHopQA",
]

"""The workflow of the search worlds (PettingLLMs, arXiv 2510.11062): a search agent queries an index, a reasoner
answers.

A turn is: ``searcher`` sees the question and what was shown so far, and writes a query; ``reasoner`` sees the passages
that the index returns, too, and answers or asks for another search.  A team of one (``team=solo``) writes a query or an
answer each turn.  The first answer ends the episode.

Evidence.  A task names the titles that support its answer; where a data set has none, the evidence is a passage with an
accepted answer that neither the question nor the query has: who copies a guess into the query finds no evidence.  A
title counts when it is shown for the first time.

Rewards.  The team reward of an answer is 1 for an exact match, or its F1 (``metric``).  The outcome of a query of a
pair, which the team does not earn, is the share of the evidence that it shows; those of an episode sum to at most 1.
The local rewards are weighted by ``local_share``: 0.2 for a message that can be read, and 0.8 of the query's share of
the evidence, of the answer's F1, or for asking again while evidence is missing.  No reward is negative.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ...experience import Task
from ..base import StepResult
from ..drawing import Drawing, Panel, draw_panels, tone_of
from ..judging import guarded
from ..setting_checks import check_at_least, check_choice, check_fraction
from ..tool_calls import Tool, ToolFormat
from ..turns import TurnTakingWorld
from .index import Passage
from .sources import VERDICTS, contains, exact_match, f1, normalise

SEARCHER, REASONER, SOLO = "searcher", "reasoner", "solo"
FORMAT = 0.2
"""The weight of a message that can be read; the rest of 1 is for being right."""
ANSWER = "the answer"
"""The evidence of a task without supporting titles."""

Team = Literal["pair", "solo"]
Metric = Literal["exact_match", "f1"]


@dataclass(frozen=True)
class PastSearch:
    """A query, None where there was none, with the passages that it showed; ``request``: what the reasoner said when
    it asked for another search."""

    query: str | None
    passages: tuple[Passage, ...]
    request: str = ""


class Search(TurnTakingWorld):
    """Rewards of queries and answers; a world adds its questions, its notation and its index.

    ``passages``: how many passages a query shows.  A task's ``data`` has the ``question``, the ``answers`` that are
    accepted, and the ``supports``: titles of the evidence, or none.
    """

    name = "search"
    search_tool: ClassVar[Tool]
    answer_tool: ClassVar[Tool]

    def __init__(
        self,
        *,
        horizon: int,
        passages: int,
        local_share: float,
        team: Team = "pair",
        metric: Metric = "exact_match",
        tools: ToolFormat | None = None,
    ) -> None:
        check_choice(self.name, "team", team, ("pair", "solo"))
        check_choice(self.name, "metric", metric, ("exact_match", "f1"))
        stages = ((SEARCHER,), (REASONER,)) if team == "pair" else ((SOLO,),)
        super().__init__(stages=stages, horizon=horizon, tools=tools)
        check_at_least("passages", passages, 1)
        check_fraction("local_share", local_share)
        self.passages, self.metric, self.local_share = passages, metric, local_share
        self._question = ""
        self._answers: tuple[str, ...] = ()
        self._supports: frozenset[str] = frozenset()
        self._evidence: frozenset[str] = frozenset()  # shown so far
        self._past: tuple[PastSearch, ...] = ()
        self._search: PastSearch | None = None
        self._earned = 0.0
        self._concluded: Panel | None = None  # the answer, drawn

    # ---- for the world to add --------------------------------------------------------------------------------------

    @abstractmethod
    def _query(self, text: str) -> str | None:
        """The query of a message; None where there is none, or several."""

    @abstractmethod
    def _answer(self, text: str) -> str | None:
        """The answer of a message; None where there is none, or several."""

    @abstractmethod
    def _request(self, text: str) -> str | None:
        """What a message that asks for another search says; None where it does not ask."""

    @abstractmethod
    async def _find(self, query: str) -> tuple[Passage, ...]:
        """The passages that the index returns."""

    @abstractmethod
    def _search_report(self) -> str:
        """What the last search found, as prompts show it."""

    # ---- tools ----------------------------------------------------------------------------------------------------

    def _tools(self, agent: str) -> Sequence[Tool]:
        search, answer = self.search_tool, self.answer_tool
        return {SEARCHER: (search,), SOLO: (search, answer)}.get(agent, (answer,))

    def _tool_report(self, agent: str) -> str:
        if agent == REASONER or self._concluded is not None:
            return super()._tool_report(agent)
        return self._search_report()

    # ---- steps ----------------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> None:
        self._begin()
        self._question, self._answers = task.data["question"], tuple(task.data["answers"])
        self._supports = frozenset(normalise(title) for title in task.data["supports"])
        self._evidence, self._past, self._search, self._earned = frozenset(), (), None, 0.0
        self._concluded = None

    def draw(self) -> Drawing:
        """The question, each query with its passages, of which those that are evidence are green, and at the end the
        answer with those that are accepted."""
        panels = [Panel("question", self._question)]
        for number, search in enumerate(self._searches, 1):
            query = "none could be read" if search.query is None else search.query
            panels.append(Panel(f"query of turn {number}", query))
            panels += [
                Panel(each.title, each.text, "good" if normalise(each.title) in self._supports else "neutral")
                for each in search.passages
            ]
            panels += [Panel("asked again", search.request)] if search.request else []
        panels += [self._concluded] if self._concluded else []
        panels += [] if self.next_agents() else [Panel("accepted", "\n".join(self._answers))]
        return draw_panels("Search", panels)

    def _state(self) -> tuple[Hashable, ...]:
        task = (self._question, self._answers, self._supports)
        return (*task, self._evidence, self._past, self._search, self._earned)

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        ((agent, text),) = actions.items()
        if agent == SEARCHER or (agent == SOLO and guarded(None, self._answer, text) is None):
            return await self._look_up(agent, text)
        return self._conclude(agent, text)

    async def _look_up(self, agent: str, text: str) -> StepResult:
        """Show what a query finds."""
        query = guarded(None, self._query, text)
        passages = () if query is None else await self._find(query)
        share, search = self._show(query or "", passages), PastSearch(query, passages)
        team = share
        if agent == SEARCHER:
            self._search = search
            self._next_stage()
        else:
            team = share / 2  # half of the aim: the other half is to answer
            self._earned += team
            self._end_turn(search)
        local = FORMAT * (query is not None) + (1 - FORMAT) * share
        info = {"malformed": float(query is None), "evidence": share, "shown": float(len(passages))}
        return StepResult({agent: self.local_share * local}, team, self._done, False, info)

    def _conclude(self, agent: str, text: str) -> StepResult:
        """Judge an answer, or go on to the next turn."""
        answer, last = guarded(None, self._answer, text), self.turn + 1 >= self.horizon
        request = None if last or answer is not None else guarded(None, self._request, text)
        right, overlap = False, 0.0
        if answer is not None:
            right = guarded(False, exact_match, answer, self._answers)
            overlap = guarded(0.0, f1, answer, self._answers)
            self._concluded = Panel("answer", answer, "good" if right else tone_of(min(overlap, 0.5)))
        search = self._search or PastSearch(None, ())
        self._end_turn(PastSearch(search.query, search.passages, request or ""), done=answer is not None)
        readable = answer is not None or request is not None
        judged = overlap if answer is not None else float(request is not None and not self._needed <= self._evidence)
        score = overlap if self.metric == "f1" else float(right)
        info = {"malformed": float(not readable), "exact_match": float(right), "f1": overlap}
        return StepResult(
            {agent: self.local_share * (FORMAT * readable + (1 - FORMAT) * judged)},
            score * (1 - self._earned),
            self._done,
            right,
            info,
        )

    @property
    def _searches(self) -> list[PastSearch]:
        """The searches so far."""
        return [*self._past, *([self._search] if self._search else [])]

    # ---- evidence -------------------------------------------------------------------------------------------------

    @property
    def _needed(self) -> frozenset[str]:
        return self._supports or frozenset({ANSWER})

    def _show(self, query: str, passages: Sequence[Passage]) -> float:
        """The share of the needed evidence that ``passages`` are the first to show."""
        if self._supports:
            shown = self._supports & {normalise(passage.title) for passage in passages}
        else:
            said = f"{self._question} | {query}"
            telling = [each for each in self._answers if normalise(each) not in VERDICTS and not contains(said, each)]
            is_shown = any(contains(passage.text, each) for passage in passages for each in telling)
            shown = frozenset({ANSWER} if is_shown else ())
        new = shown - self._evidence
        self._evidence |= new
        return len(new) / len(self._needed)

    def _end_turn(self, search: PastSearch, *, done: bool = False) -> None:
        self._past, self._search = (*self._past, search), None
        self._next_turn(done=done)

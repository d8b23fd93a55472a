"""Teams of many in mathematics: tool agents compute, reasoners answer, and a judge or a vote decides (the teams of 3, 5
and 7 agents of PettingLLMs, arXiv 2510.11062, experiments).

A turn, the only one of an episode, is: each of ``tool_1``, ``tool_2``, ... writes a program; each of ``reasoner_1``,
``reasoner_2``, ... sees the output of one of them and answers; with ``decision=judge`` the agent ``judge`` sees all
outputs and answers, and gives the team's answer; with ``decision=vote`` it is the reasoners' most common answer, the
earliest of several.  Tool agents do not see each other's programs, nor reasoners each other's answers.

Rewards.  Programs and answers earn what they earn in a pair (:mod:`.world`): the outcome is 1 if they are right,
the mean where several agents act at the same time.  The messages that end the turn earn 1 if the team's answer is
right: the judge's, or the last reasoners'.  So an episode's outcome is 0 or 1, and it is earned once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Literal

from ...experience import Message, Split, Task
from ..base import Skill, StepResult
from ..drawing import Drawing, Panel, draw_panels
from ..setting_checks import check_choice
from ..tool_calls import Tool, ToolFormat
from ..turns import TurnTakingWorld
from .world import JUDGE, REASONER, TOOL, Mathematics, ProgramRun, run_panels

Decision = Literal["judge", "vote"]


def members(size: int, decision: Decision = "judge") -> list[str]:
    """The agents of a team of ``size``, in the order in which they act: about as many tool agents as reasoners.

    Raises ``ValueError`` for a size that is even or below 3: without a majority, or one that is a pair.
    """
    check_choice("math_team", "decision", decision, ("judge", "vote"))
    if size < 3 or size % 2 == 0:
        raise ValueError(f"env.size must be odd and at least 3, got {size}; env=math has teams of one and two")
    tools = (size - 1) // 2
    reasoners = size - tools - (decision == "judge")
    names = [f"{TOOL}_{i + 1}" for i in range(tools)] + [f"{REASONER}_{i + 1}" for i in range(reasoners)]
    return names + [JUDGE] * (decision == "judge")


class Ensemble(TurnTakingWorld):
    """A team of ``size`` agents on the questions of ``pair``, a world of a pair with one turn.

    ``order``: the agents act one after the other (``sequential``), or all tool agents at the same time and then all
    reasoners (``simultaneous``).  ``tools``: the form in which agents call the pair's functions, the same as the
    pair's.
    """

    name = "math_team"

    def __init__(
        self,
        *,
        pair: Mathematics,
        size: int = 3,
        decision: Decision = "judge",
        order: Literal["sequential", "simultaneous"] = "sequential",
        tools: ToolFormat | None = None,
    ) -> None:
        names = members(size, decision)
        check_choice(self.name, "order", order, ("sequential", "simultaneous"))
        for key, value, needed in (
            ("team", pair.agents, (TOOL, REASONER)),
            ("order", pair.order, "sequential"),
            ("horizon", pair.horizon, 1),
            ("stop", pair.stop, "answer"),
            ("tools", pair.tool_format, tools),
        ):
            if value != needed:
                raise ValueError(f"env.pair.{key}: an ensemble is made of pairs with {key} {needed}, got {value}")
        roles = [tuple(name for name in names if name.startswith(role)) for role in (TOOL, REASONER, JUDGE)]
        stages = [role for role in roles if role] if order == "simultaneous" else [(name,) for name in names]
        super().__init__(stages=stages, horizon=1, tools=tools)
        self.pair, self.size, self.decision, self.order = pair, size, decision, order
        self._tool_agents = len(roles[0])
        self._seats: tuple[Mathematics, ...] = ()  # an episode of the pair for each tool agent
        self._answers: tuple[str | None, ...] = ()
        self._decided = ("", False)  # the judge's message, and whether the team's answer is right

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return self.pair.tasks(split, count, seed)

    def task_count(self, split: Split) -> int | None:
        return self.pair.task_count(split)

    def reset(self, task: Task) -> None:
        self._begin()
        seat = self.pair.fork()
        seat.reset(task)
        self._seats, self._answers = (seat,) * self._tool_agents, ()
        self._decided = ("", False)

    def draw(self) -> Drawing:
        """The question, what each agent has proposed so far, and at the end whether the team is right."""
        panels = [self._seats[0].question_panel]
        for agent, seat in zip(self.agents, self._seats, strict=False):
            if seat.next_agents() == (REASONER,):  # the tool agent has acted
                panels += run_panels(seat.run, agent)
        answers = zip(self.agents[self._tool_agents :], self._answers, strict=False)
        panels += [Panel(agent, "none could be read" if answer is None else answer) for agent, answer in answers]
        if not self.next_agents():
            message, is_right = self._decided
            panels += [Panel(JUDGE, message)] if self.decision == "judge" else []
            panels.append(self._seats[0].verdict(is_right))
        return draw_panels("A team in mathematics", panels)

    def _state(self) -> tuple[Hashable, ...]:
        return (*(seat.state_key() for seat in self._seats), self._answers)

    async def open(self) -> Mapping[str, bool | int | str]:
        return await self.pair.open()

    async def close(self) -> None:
        await self.pair.close()

    # ---- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, agent: str) -> list[Message]:
        if agent == JUDGE:
            return self._seats[0].judge_prompt(self._proposals())
        return self._seats[self._seat(agent)]._prompt(_role(agent))

    def _tools(self, agent: str) -> Sequence[Tool]:
        return self.pair._tools(_role(agent))

    def _tool_report(self, agent: str) -> str:
        return self._seats[0 if agent == JUDGE else self._seat(agent)]._tool_report(_role(agent))

    def _seat(self, agent: str) -> int:
        """The place of the tool agent that ``agent`` is, or whose output it sees."""
        return (int(agent.rpartition("_")[2]) - 1) % self._tool_agents

    def _proposals(self) -> dict[str, str | None]:
        """The output of each tool agent's program and the answer of each reasoner; None where there is none."""
        outputs = [None if seat.run is None else seat.run.output for seat in self._seats]
        return dict(zip(self.agents, [*outputs, *self._answers], strict=False))

    # ---- steps ----------------------------------------------------------------------------------------------------

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        results = [await self._play(agent, text) for agent, text in actions.items()]
        team = fmean(result.team for result in results)
        last = self._stage + 1 == len(self.stages)
        if last and self.decision == "vote":
            team = float(await self._vote_is_right())
        if last:
            self._decided = (actions.get(JUDGE, ""), team == 1.0)
            self._next_turn(done=True)
        else:
            self._next_stage()
        local = {agent: result.local[_role(agent)] for agent, result in zip(actions, results, strict=True)}
        info = {key: fmean(result.info[key] for result in results) for key in results[0].info}
        return StepResult(local, team, last, last and team == 1.0, info)

    async def _play(self, agent: str, text: str) -> StepResult:
        """The message of one agent in its seat; the judge has a seat of its own, without a program."""
        if agent == JUDGE:
            return await self._seats[0].fork().act(REASONER, text)
        index = self._seat(agent)
        seat = self._seats[index].fork()
        result = await seat.act(_role(agent), text)
        if _role(agent) == TOOL:
            self._seats = (*self._seats[:index], seat, *self._seats[index + 1 :])
        else:
            self._answers = (*self._answers, await seat.read_answer(text))
        return result

    async def _vote_is_right(self) -> bool:
        """Whether the most common answer is the task's."""
        answers = [answer for answer in self._answers if answer is not None]
        if not answers:
            return False
        seat = self._seats[0]
        votes = [sum([await seat.equal(answer, other) for other in answers]) for answer in answers]
        return await seat.is_right(answers[votes.index(max(votes))])

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """A demonstrator of the pair; the judge is a reasoner who sees the most common of the proposals."""
        if agent != JUDGE:
            return self._seats[self._seat(agent)].demonstration(_role(agent), rng, skill=skill)
        output = _most_common([each for each in self._proposals().values() if each is not None])
        seat = self._seats[0].fork()
        seat.run = None if output is None else ProgramRun("", output, output)
        return seat.demonstration(REASONER, rng, skill=skill)


def _role(agent: str) -> str:
    """The role in the pair of ``tool_1``, ``reasoner_2`` or the judge."""
    return TOOL if agent.startswith(TOOL) else REASONER


def _most_common(answers: Sequence[str]) -> str | None:
    return max(answers, key=answers.count) if answers else None

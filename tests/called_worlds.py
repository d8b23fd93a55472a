"""Every world with turns, in its wordings and teams, and good messages of its agents: for tests of tool calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from troupe.envs.code import Code, MicroCode, ProblemSet, ProblemSource
from troupe.envs.code.problem import Check, Problem
from troupe.envs.code_collab import CodeCollab, MicroCollab
from troupe.envs.couplet.world import Couplet
from troupe.envs.delegation import Delegation
from troupe.envs.delegation.world import WORKERS
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.sudoku import Sudoku
from troupe.envs.math import Arithmetic, Ensemble, MathQuestions, WordProblems
from troupe.envs.search import FactSearch, QuestionSearch
from troupe.envs.search.index import Index, Passage
from troupe.envs.signalling.world import Signalling
from troupe.envs.tool_calls import ToolFormat
from troupe.envs.turns import TurnTakingWorld
from troupe.envs.writing import GeneratedPosts, Writing
from troupe.experience import Task
from troupe.sandbox import LocalSandbox

DATA = ProblemSet(ProblemSource("apps", "nowhere.jsonl"))
DOUBLE = Problem(
    "double", "Double it.", (Check("1\n", "2\n"), Check("4\n", "8\n")), reference="print(int(input()) * 2)"
)
TOTAL = Problem("total", 'def total(xs):\n    """ Sum them. """\n', (Check("[[1, 2]]", "3"),), function="total")
TEST = "**Test Input:**\n```\n3\n```\n**Test Output:**\n```\n6\n```"
AUX, MAIN = "def aux(xs):\n    return sum(xs)", "def total(xs):\n    return aux(xs)"
QUESTION = Task("q", "test", {"question": "How many are twice 21?", "answer": "42", "several": False})
PROGRAM, BOX = "```python\nprint(6 * 7)\n```", "\\boxed{42}"
BORN = {"question": "Where was Babbage born?", "answers": ("London",), "supports": ("Charles Babbage",)}
QUERY, SAID = "<search>Babbage born</search>", "<answer>London</answer>"
PASSAGES = (
    Passage("Charles Babbage", "Charles Babbage was born in London."),
    Passage("London", "It lies on the Thames."),
)


@dataclass(frozen=True)
class Case:
    """``make(sandbox, tools=...)``; ``functions``: by agent, those that it is offered in its first turn.

    ``task`` and ``messages`` by agent are for worlds without tasks or demonstrators of their own.
    """

    make: Callable[..., TurnTakingWorld]
    functions: Mapping[str, tuple[str, ...]]
    task: Task | None = None
    messages: Mapping[str, str] = field(default_factory=dict)

    def begin(self, sandbox: LocalSandbox, tools: ToolFormat | None) -> TurnTakingWorld:
        """An episode."""
        world = self.make(sandbox, tools=tools)
        world.reset(world.tasks("train", 1, 0)[0] if self.task is None else self.task)
        return world

    def say(self, world: TurnTakingWorld, agent: str, rng: Random) -> str:
        """A good message of ``agent``."""
        return self.messages[agent] if self.messages else world.demonstration(agent, rng)


def grid(make: Any, **settings: Any) -> Callable[..., TurnTakingWorld]:
    return lambda sandbox, **tools: make(sandbox=sandbox, **settings, **tools)


def plain(make: Any, **settings: Any) -> Callable[..., TurnTakingWorld]:
    return lambda sandbox, **tools: make(**settings, **tools)


def programmed(make: Any, *arguments: Any, **settings: Any) -> Callable[..., TurnTakingWorld]:
    return lambda sandbox, **tools: make(sandbox, *arguments, **settings, **tools)


def over_passages(sandbox: LocalSandbox, **settings: Any) -> QuestionSearch:
    world = QuestionSearch(index="nowhere", train=[], horizon=2, **settings)
    world.index = Index.of(PASSAGES)
    return world


def ensemble(make: Any, **settings: Any) -> Callable[..., TurnTakingWorld]:
    return lambda sandbox, tools: Ensemble(
        pair=make(sandbox=sandbox, horizon=1, stop="answer", tools=tools, **settings), tools=tools
    )


def two(first: str, second: str, *functions: str) -> dict[str, tuple[str, ...]]:
    """Two agents with one function each."""
    return dict(zip((first, second), ((each,) for each in functions), strict=True))


PROGRAMS: dict[str, Any] = {"wording": "full", "tool_message": "program"}
SETS: dict[str, Any] = {"train": [], "test": []}
TEAM = {"tool_1": PROGRAM, "reasoner_1": BOX, "judge": BOX}

CASES: dict[str, Case] = {
    "sokoban": Case(grid(Sokoban), two("tool", "plan", "propose", "move")),
    "sokoban_full": Case(grid(Sokoban, wording="full"), two("tool", "plan", "propose", "move")),
    "sokoban_program": Case(grid(Sokoban, **PROGRAMS), two("tool", "plan", "python", "move")),
    "sokoban_solo": Case(grid(Sokoban, wording="full", team="solo"), {"solo": ("move",)}),
    "plan_path": Case(grid(PlanPath), two("tool", "plan", "propose", "move")),
    "plan_path_program": Case(grid(PlanPath, **PROGRAMS), two("tool", "plan", "python", "move")),
    "sudoku": Case(grid(Sudoku), two("tool", "plan", "propose", "fill")),
    "sudoku_full": Case(grid(Sudoku, wording="full"), two("tool", "plan", "propose", "fill")),
    "sudoku_program": Case(grid(Sudoku, **PROGRAMS), two("tool", "plan", "python", "fill")),
    "couplet": Case(plain(Couplet), two("first", "second", "write", "write")),
    "signalling": Case(plain(Signalling), two("sender", "receiver", "send", "guess")),
    "delegation": Case(
        plain(Delegation), {"orchestrator": ("delegate", "answer"), **dict.fromkeys(WORKERS, ("answer",))}
    ),
    "writing": Case(plain(Writing), two("concise", "detailed", "write", "write")),
    "writing_posts": Case(
        plain(Writing, kind="tldr", train=[GeneratedPosts()], examples=1),
        two("concise", "detailed", "write", "write"),
        messages={"concise": "It broke.", "detailed": "However, it broke, so we looked for another one."},
    ),
    "writing_solo": Case(plain(Writing, team="solo"), {"solo": ("write",)}),
    "code": Case(programmed(MicroCode), two("tester", "coder", "submit", "write")),
    "code_solo": Case(programmed(MicroCode, team="solo"), {"solo": ("write",)}),
    "code_published": Case(
        programmed(Code, DATA),
        two("tester", "coder", "submit", "python"),
        Task("double", "test", {"problem": DOUBLE}),
        {"tester": TEST, "coder": "```python\nprint(int(input()) * 2)\n```"},
    ),
    "code_collab": Case(programmed(MicroCollab), two("aux", "main", "write", "write")),
    "code_collab_published": Case(
        programmed(CodeCollab, DATA),
        two("aux", "main", "write", "write"),
        Task("total", "test", {"problem": TOTAL}),
        {"aux": AUX, "main": MAIN},
    ),
    "math": Case(grid(Arithmetic), two("tool", "reasoner", "calculate", "answer")),
    "math_solo": Case(grid(Arithmetic, team="solo"), {"solo": ("calculate", "answer")}),
    "math_words": Case(
        grid(WordProblems),
        two("tool", "reasoner", "calculate", "answer"),
        Task("q", "test", {"question": "Tom has 9 pens. Tom gives away 3.", "answer": "6"}),
        {"tool": "9 - 3", "reasoner": "6"},
    ),
    "math_questions": Case(
        grid(MathQuestions, **SETS),
        {"tool": ("python",), "reasoner": ("answer", "again")},
        QUESTION,
        {"tool": PROGRAM, "reasoner": BOX},
    ),
    "math_questions_at_once": Case(
        grid(MathQuestions, **SETS, order="simultaneous"),
        {"tool": ("python",), "reasoner": ("answer", "again")},
        QUESTION,
        {"tool": PROGRAM, "reasoner": BOX},
    ),
    "math_questions_solo": Case(
        grid(MathQuestions, **SETS, team="solo"), {"solo": ("python", "answer")}, QUESTION, {"solo": PROGRAM}
    ),
    "math_team": Case(
        ensemble(Arithmetic), {"tool_1": ("calculate",), "reasoner_1": ("answer",), "judge": ("answer",)}
    ),
    "math_team_questions": Case(
        ensemble(MathQuestions, **SETS),
        {"tool_1": ("python",), "reasoner_1": ("answer",), "judge": ("answer",)},
        QUESTION,
        TEAM,
    ),
    "search": Case(plain(FactSearch), two("searcher", "reasoner", "search", "answer")),
    "search_solo": Case(plain(FactSearch, team="solo"), {"solo": ("search", "answer")}),
    "search_questions": Case(
        over_passages,
        {"searcher": ("search",), "reasoner": ("answer", "ask")},
        Task("q", "test", BORN),
        {"searcher": QUERY, "reasoner": SAID},
    ),
}

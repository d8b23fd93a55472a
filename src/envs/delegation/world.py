"""Delegation: an orchestrator calls as many workers as it needs, and answers from their replies.

Each name has a number, which one worker alone sees: always the same worker for a name, so that a policy can know it.
The orchestrator sees the names that it is asked for, and writes calls ("call bob blue ann red"); exactly the workers
that it called act then, each on the names that it was called for, and it sees their replies.  It calls again, or
answers ("say bob 7 ann 4").  Episodes have no fixed shape: what the orchestrator writes decides who acts, and for how
long.

A turn is: the workers that were called in the turn before, if any, and then the orchestrator.

Rewards.  Let d = 1 - ``call_cost`` * (useless calls so far), at least 0.  A call is useless where the worker has no
number of that name, the name is not asked for, or the same call was made before.  A message of calls earns half of the
share of the asked names that it is the first to call the right worker for, times d; a right answer earns d less the
reward for calls.  An answer is right where all numbers are, and each was called for: a guess is no answer.  A worker's
reply earns 1 if it is right, the mean where several act at the same time.  No reward is negative, and those of the
orchestrator sum to at most 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from ...experience import Message, Split, Task
from ..base import Skill, StepResult
from ..drawing import Drawing, Panel, draw_panels, tone_of
from ..judging import guarded
from ..setting_checks import check_choice, check_fraction
from ..splits import content_digest, split_of
from ..task_sampling import sample_tasks
from ..tool_calls import Tool, ToolFormat, text_tool
from ..turns import TurnTakingWorld, chat

ORCHESTRATOR = "orchestrator"
WORKERS: tuple[str, ...] = ("red", "blue", "green", "grey")
NAMES: tuple[str, ...] = tuple("ann bob cid dan eva fay gus hal".split())
HOLDERS: dict[str, str] = dict(zip(NAMES, "red blue red grey blue green green grey".split(), strict=True))
"""The worker that sees a name's number."""
DIGITS: tuple[str, ...] = tuple("0123456789")
CALL, SAY, REPLY, ASK, NONE, END = "call", "say", "reply", "ask", "none", ";"
MAX_CALLS = 8
"""Of one message."""


@dataclass(frozen=True)
class Directory:
    """The ``numbers`` of :data:`NAMES`, in their order, and the names whose numbers are asked for."""

    numbers: tuple[str, ...]
    asked: tuple[str, ...]

    def number(self, name: str) -> str:
        """Of a name."""
        return self.numbers[NAMES.index(name)]

    @property
    def answer(self) -> tuple[str, ...]:
        """The numbers of the names that are asked for, in their order."""
        return tuple(self.number(name) for name in self.asked)

    def notes(self, worker: str) -> dict[str, str]:
        """The names and numbers that ``worker`` sees."""
        return {name: self.number(name) for name in NAMES if HOLDERS[name] == worker}


def read_calls(text: str) -> tuple[tuple[str, str], ...] | None:
    """The (name, worker) of each call of "call bob blue ann red"; None where it is no call.  A repeated one counts
    once."""
    words = text.split(maxsplit=2 * MAX_CALLS + 1)
    if len(words) < 3 or words[0] != CALL or not len(words) % 2 or len(words) > 2 * MAX_CALLS + 1:
        return None
    calls = tuple(dict.fromkeys(zip(words[1::2], words[2::2], strict=True)))
    return calls if all(name in NAMES and worker in WORKERS for name, worker in calls) else None


def read_numbers(text: str, names: Sequence[str], words: Sequence[str] = DIGITS) -> tuple[str, ...] | None:
    """The numbers of "say bob 7 ann 4" for ``names``, in their order; None where it says something else."""
    say, *rest = text.split(maxsplit=2 * len(names) + 1) or [""]
    named, numbers = rest[::2], rest[1::2]
    fine = say == SAY and named == [*names] and len(numbers) == len(names) and all(n in words for n in numbers)
    return tuple(numbers) if fine else None


def say_numbers(names: Sequence[str], numbers: Sequence[str]) -> str:
    """The reverse of :func:`read_numbers`."""
    return " ".join([SAY, *(word for pair in zip(names, numbers, strict=True) for word in pair)])


DELEGATE = text_tool(
    "delegate", "Call workers.", "calls", "name and worker of each call, separated by blanks", f"{CALL} {{}}".format
)
ANSWER = text_tool(
    "answer", "Give the numbers.", "numbers", "each name and its number, separated by blanks", f"{SAY} {{}}".format
)
FORMAT = 0.2
"""The share of a worker's local reward for a reply that can be read; the rest is for being right."""
Call = tuple[str, str]
"""A name and the worker that is called for its number."""


class Delegation(TurnTakingWorld):
    """1 to ``asked`` names are asked for, of eight; ``horizon`` messages of the orchestrator.

    ``order``: the workers of a message act at the same time (``simultaneous``) or one after the other, in the order of
    the calls (``sequential``).  ``call_cost``: what a useless call takes off the reward, as a share.
    ``tools``: agents call ``delegate`` and ``answer`` in this form (:mod:`..tool_calls`).
    """

    name = "delegation"

    def __init__(
        self,
        *,
        asked: int = 3,
        horizon: int = 3,
        order: Literal["simultaneous", "sequential"] = "simultaneous",
        call_cost: float = 0.2,
        local_share: float = 0.2,
        tools: ToolFormat | None = None,
    ) -> None:
        check_choice(self.name, "order", order, ("simultaneous", "sequential"))
        workers = (WORKERS,) if order == "simultaneous" else tuple((worker,) for worker in WORKERS)
        super().__init__(stages=(*workers, (ORCHESTRATOR,)), horizon=horizon, tools=tools)
        if not 1 <= asked <= len(NAMES):
            raise ValueError(f"env.asked must be in [1, {len(NAMES)}], got {asked}")
        check_fraction("call_cost", call_cost)
        check_fraction("local_share", local_share)
        self.asked, self.order = asked, order
        self.call_cost, self.local_share = call_cost, local_share
        self._directory = Directory((), ())
        self._made: tuple[Call, ...] = ()  # of all messages
        self._waiting: tuple[Call, ...] = ()  # the calls that no worker has replied to yet
        self._replies: tuple[tuple[Call, str], ...] = ()  # with the number
        self._useless, self._paid = 0, 0.0

    # ---- tasks and turns ------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, self._draw, max_rejections=1000)

    def _draw(self, rng: Random) -> Task:
        """It asks for 1 to ``asked`` names, which decide the split with their numbers, not the others or the order."""
        numbers = tuple(rng.choice(DIGITS) for _ in NAMES)
        asked = tuple(rng.sample(NAMES, rng.randint(1, self.asked)))
        directory = Directory(numbers, asked)
        split = split_of(content_digest(" ".join(f"{name} {directory.number(name)}" for name in sorted(asked))))
        digest = content_digest(" ".join([*numbers, *asked]))
        return Task(f"{self.name}-{digest}", split, {"numbers": list(numbers), "asked": list(asked)})

    def reset(self, task: Task) -> None:
        self._begin()
        self._directory = Directory(tuple(task.data["numbers"]), tuple(task.data["asked"]))
        self._made, self._waiting, self._replies = (), (), ()
        self._useless, self._paid = 0, 0.0

    def next_agents(self) -> tuple[str, ...]:
        if self._done or not self._waiting:
            return () if self._done else (ORCHESTRATOR,)
        called = tuple(dict.fromkeys(worker for _, worker in self._waiting))
        return called if self.order == "simultaneous" else called[:1]

    def _state(self) -> tuple[Hashable, ...]:
        return (self._directory, self._made, self._waiting, self._replies, self._useless, self._paid)

    # ---- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, agent: str) -> list[Message]:
        if agent == ORCHESTRATOR:
            replies = [word for (name, _), number in self._replies for word in (name, number)]
            words = [ASK, *self._directory.asked, *([REPLY, *replies] if replies else [])]
        else:
            notes = [word for note in self._directory.notes(agent).items() for word in note]
            words = [*notes, ASK, *self._names_for(agent)]
        return chat(f"{agent} {self.name}", " ".join(words))

    def _names_for(self, worker: str) -> list[str]:
        """The names for which ``worker`` is called now."""
        return [name for name, called in self._waiting if called == worker]

    def draw(self) -> Drawing:
        """The names that are asked for, and each call with its reply; green where it is useful."""
        replies, useful = dict(self._replies), self._useful()
        calls = [
            Panel(f"{worker} about {name}", replies.get((name, worker), "?"), tone_of((name, worker) in useful))
            for name, worker in self._made
        ]
        return draw_panels("Delegation", [Panel("asked", " ".join(self._directory.asked)), *calls])

    def _tools(self, agent: str) -> Sequence[Tool]:
        return (DELEGATE, ANSWER) if agent == ORCHESTRATOR else (ANSWER,)

    # ---- steps ----------------------------------------------------------------------------------------------------

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        if ORCHESTRATOR not in actions:
            return self._reply(actions)
        text = actions[ORCHESTRATOR]
        answer = guarded(None, read_numbers, text, self._directory.asked)
        return self._call(guarded(None, read_calls, text)) if answer is None else self._conclude(answer)

    def _reply(self, actions: Mapping[str, str]) -> StepResult:
        local, shares = {}, []
        replied: dict[Call, str] = {}
        for worker, text in actions.items():
            names, notes = self._names_for(worker), self._directory.notes(worker)
            numbers = guarded(None, read_numbers, text, names, (*DIGITS, NONE))
            right = numbers == tuple(notes.get(name, NONE) for name in names)
            local[worker] = self.local_share * (FORMAT * (numbers is not None) + (1 - FORMAT) * right)
            shares.append(float(right))
            replied |= {
                (name, worker): number for name, number in zip(names, numbers or [NONE] * len(names), strict=True)
            }
        self._replies += tuple((call, replied[call]) for call in self._waiting if call in replied)
        self._waiting = tuple(call for call in self._waiting if call not in replied)
        right_share = sum(shares) / len(shares)
        return StepResult(local, right_share, False, False, {"right": right_share})

    def _call(self, calls: tuple[Call, ...] | None) -> StepResult:
        """Call workers; a message that is neither calls nor an answer calls nobody."""
        useful, new = self._useful(), tuple(call for call in calls or () if call not in self._made)
        first = useful.intersection(new)
        self._useless += len(calls or ()) - len(first)
        self._made, self._waiting = (*self._made, *new), calls or ()
        self._next_turn()
        if self._done:
            self._waiting = ()  # nobody would hear the replies
        gain = 0.0 if self._done else len(first) / len(useful)
        team = self._pay(0.5 * gain * self._discount)
        info = {"malformed": float(calls is None), "calls": len(calls or ()), "useless": len(calls or ()) - len(first)}
        return StepResult({ORCHESTRATOR: self.local_share * gain}, team, self._done, False, info)

    def _conclude(self, answer: tuple[str, ...]) -> StepResult:
        useful = self._useful()
        covered = [call in self._made for call in useful]
        right = answer == self._directory.answer and all(covered)
        team = self._pay(self._discount - self._paid) if right else 0.0
        self._next_turn(done=True)
        info = {"malformed": 0.0, "calls": 0, "useless": 0, "guessed": float(not all(covered))}
        return StepResult({ORCHESTRATOR: self.local_share * right}, team, True, right, info)

    def _useful(self) -> set[Call]:
        """The calls that the question needs."""
        return {(name, HOLDERS[name]) for name in self._directory.asked}

    @property
    def _discount(self) -> float:
        return max(0.0, 1 - self.call_cost * self._useless)

    def _pay(self, reward: float) -> float:
        """``reward``, at least 0; those of an episode sum to at most 1."""
        payment = max(0.0, min(reward, 1 - self._paid))
        self._paid += payment
        return payment

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """See :func:`orchestrate` and :func:`work`."""
        if agent == ORCHESTRATOR:
            last = self.turn + 1 >= self.horizon
            replies = [(name, number) for (name, _), number in self._replies]
            return orchestrate(self._directory, replies, last, rng, skill)
        return work(self._directory, agent, self._names_for(agent), rng, skill)


def words() -> list[str]:
    """Every word of observations and messages."""
    return [Delegation.name, ORCHESTRATOR, *WORKERS, *NAMES, *DIGITS, CALL, SAY, REPLY, ASK, NONE, END]


Replies = Sequence[tuple[str, str]]
"""Of each reply: the name and the number."""
FIRST_ONLY, EVERYBODY = 0.5, 0.85
"""Of flawed orchestrators: up to the first share they call for the first name alone, up to the second they ask a second
worker for every name, and the rest answers without a call."""


def orchestrate(directory: Directory, replies: Replies, last: bool, rng: Random, skill: Skill) -> str:
    """Experts call each name's worker, all in one message, and again where a reply has no number; then they answer.

    A novice forgets a name or takes another worker, and mistakes a number.  A flawed demonstrator calls for the first
    name alone, or calls too many, or nobody, and answers with the first reply for every name.
    """
    heard = {name: number for name, number in replies if number != NONE}
    calls = [(name, HOLDERS[name]) for name in directory.asked]
    missing = [call for call in calls if call[0] not in heard]
    if skill == "flawed":
        return _flawed(directory, replies, last, calls, rng)
    if missing and not last:
        if skill == "novice":
            missing = _slip(missing, rng)
        return " ".join([CALL, *(word for call in missing for word in call)])
    numbers = [heard.get(name) or rng.choice(DIGITS) for name in directory.asked]
    if skill == "novice":
        numbers[rng.randrange(len(numbers))] = rng.choice(DIGITS)
    return say_numbers(directory.asked, numbers)


def _slip(calls: list[tuple[str, str]], rng: Random) -> list[tuple[str, str]]:
    place = rng.randrange(len(calls))
    if len(calls) > 1 and rng.random() < 0.5:
        return [*calls[:place], *calls[place + 1 :]]
    return [*calls[:place], (calls[place][0], rng.choice(WORKERS)), *calls[place + 1 :]]


def _flawed(directory: Directory, replies: Replies, last: bool, calls: Sequence[tuple[str, str]], rng: Random) -> str:
    kind = rng.random()
    if not replies and not last and kind < EVERYBODY:
        if kind < FIRST_ONLY:
            calls = calls[:1]
        else:
            others = [(name, rng.choice([each for each in WORKERS if each != worker])) for name, worker in calls]
            calls = [call for pair in zip(calls, others, strict=True) for call in pair]
        return " ".join([CALL, *(word for call in calls for word in call)])
    number = replies[0][1] if replies and replies[0][1] != NONE else rng.choice(DIGITS)
    return say_numbers(directory.asked, [number] * len(directory.asked))


def work(directory: Directory, worker: str, names: Sequence[str], rng: Random, skill: Skill) -> str:
    """Experts say the numbers of the names; a novice mistakes one, a flawed worker says its first for every name."""
    known = directory.notes(worker)
    numbers = [known.get(name, NONE) for name in names]
    if skill == "novice":
        numbers[rng.randrange(len(numbers))] = rng.choice(DIGITS)
    elif skill == "flawed":
        numbers = [next(iter(known.values()), NONE)] * len(names)
    return say_numbers(names, numbers)

"""Signalling: a Lewis game over sequences (D. Lewis, Convention, 1969; for emergent communication: Lazaridou et al.,
arXiv 1612.07182).

The sender sees a sequence of colours and writes a message in code words; the receiver sees the message alone and names
the colours.  No word means a colour beforehand: any of the words' orders is as good as any other, and the two must come
to use the same.  So one agent's best message depends on what the other has learnt, and no attempt of an agent by itself
is right or wrong.

The optimum is known: see :func:`best_success`.

One joint reward: how much a turn's guess is better than the best of the episode before it, so that an episode's rewards
sum to its best score and neither holding back nor repeating pays.  No local reward.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from random import Random

from ...experience import Message, Split, Task
from ..base import Skill, StepResult
from ..drawing import Drawing, Panel, draw_panels, tone_of
from ..judging import guarded
from ..splits import content_digest, split_of
from ..task_sampling import sample_tasks
from ..tool_calls import Tool, ToolFormat, text_tool
from ..turns import TurnTakingWorld, chat

SENDER, RECEIVER = "sender", "receiver"
COLOURS: tuple[str, ...] = tuple("red orange yellow green blue purple black white".split())
WORDS: tuple[str, ...] = tuple("ba di ku mo ne ra so tu".split())
SEND = text_tool("send", "Tell the receiver the colours.", "words", "code words, separated by blanks")
GUESS = text_tool("guess", "Name the colours.", "colours", "colours, separated by blanks")
CODES = 4
"""The codes among which novices draw."""


class Signalling(TurnTakingWorld):
    """A sequence of ``length`` of the first ``colours`` colours, told in the first ``words`` code words.

    From the second turn on, both see the message and the guess of the turn before.  ``tools``: the agents call ``send``
    and ``guess`` in this form (:mod:`..tool_calls`).
    """

    name = "signalling"

    def __init__(
        self,
        *,
        horizon: int = 2,
        length: int = 5,
        colours: int = 8,
        words: int = 8,
        tools: ToolFormat | None = None,
    ) -> None:
        super().__init__(stages=((SENDER,), (RECEIVER,)), horizon=horizon, tools=tools)
        if not 1 <= length <= 8:
            raise ValueError(f"env.length must be in [1, 8], got {length}")
        if not 2 <= colours <= len(COLOURS):
            raise ValueError(f"env.colours must be in [2, {len(COLOURS)}], got {colours}")
        if not 2 <= words <= len(WORDS):
            raise ValueError(f"env.words must be in [2, {len(WORDS)}], got {words}")
        self.length, self.colours, self.words = length, COLOURS[:colours], WORDS[:words]
        self._target: tuple[str, ...] = ()
        self._message: tuple[str, ...] | None = None
        self._before: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # message and guess of the turn before

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, self._draw, max_rejections=2000)

    def _draw(self, rng: Random) -> Task:
        """The id of a task is a digest of its sequence, which decides its split."""
        target = tuple(rng.choice(self.colours) for _ in range(self.length))
        digest = content_digest(" ".join(target))
        return Task(f"{self.name}-{digest}", split_of(digest), {"target": target})

    # ---- steps ----------------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> None:
        self._begin()
        self._target = task.data["target"]
        self._message, self._before = None, None

    def _prompt(self, agent: str) -> list[Message]:
        shown = ["colours", *self._target] if agent == SENDER else ["message", *(self._message or ["malformed"])]
        message, guess = ("none", "none") if self._before is None else map(_words, self._before)
        return chat(f"{agent} {self.name}", " ".join([*shown, "before", message, "guess", guess]))

    def _tools(self, agent: str) -> Sequence[Tool]:
        return (SEND,) if agent == SENDER else (GUESS,)

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        if SENDER in actions:
            self._message = guarded((), read_words, actions[SENDER], self.words, self.length)
            self._next_stage()
            return StepResult({SENDER: 0.0}, 0.0, False, False, {"malformed": float(not self._message)})
        guess = guarded((), read_words, actions[RECEIVER], self.colours, self.length)
        score = self._score(guess)
        gain = self._gain(score)
        self._before, self._message = (self._message or (), guess), None
        self._next_turn(done=score == 1)
        return StepResult({RECEIVER: 0.0}, gain, self._done, score == 1, {"malformed": float(not guess)})

    def draw(self) -> Drawing:
        """Message and guess of the turn before, how much of it is right, and at the end the colours."""
        panels, over = list[Panel](), not self.next_agents()
        if self._before is not None:
            message, guess = self._before
            right = self._score(guess)
            panels.append(Panel("message", _words(message)))
            panels.append(Panel(f"guess, {right:.0%} right", _words(guess), tone_of(right)))
        if self._message is not None:
            panels.append(Panel("message of this turn", _words(self._message)))
        shown = _words(self._target) if over else f"{self.length}, which the sender alone sees"
        return draw_panels("Signalling", [Panel("colours", shown), *panels])

    def _score(self, guess: Sequence[str]) -> float:
        return sum(a == b for a, b in zip(guess, self._target, strict=False)) / self.length

    def _state(self) -> tuple[Hashable, ...]:
        return (self._target, self._message, self._before)

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Code number s names each colour by the word s places after its own, and reads words the other way.  Experts
        use code 0.  A novice draws one of the :data:`CODES` anew for each word: it names what it sees, but in no code.
        Flawed agents write any words.
        """
        given = self._target if agent == SENDER else self._message or ()
        known, used, sign = (self.colours, self.words, 1) if agent == SENDER else (self.words, self.colours, -1)
        if not given or skill == "flawed":
            return " ".join(rng.choice(used) for _ in range(self.length))
        codes = [rng.randrange(CODES) if skill == "novice" else 0 for _ in given]
        places = (known.index(word) + sign * code for word, code in zip(given, codes, strict=True))
        return " ".join(used[place % len(used)] for place in places)


def read_words(text: str, known: Sequence[str], length: int) -> tuple[str, ...]:
    """The words of ``text``; none where one of them is not ``known``, or where there are not ``length``."""
    words = tuple(text.split())
    return words if len(words) == length and set(known).issuperset(words) else ()


def best_success(world: Signalling) -> float:
    """The highest expected success of any convention in one turn: there are only so many different messages."""
    return min(1.0, (len(world.words) / len(world.colours)) ** world.length)


def vocabulary() -> list[str]:
    """Every word of observations and messages."""
    return [*"sender receiver signalling colours message before guess none malformed".split(), *COLOURS, *WORDS]


def _words(words: Sequence[str]) -> str:
    return " ".join(words) or "malformed"

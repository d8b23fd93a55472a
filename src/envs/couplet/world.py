"""Couplet: two poets write the two lines of a couplet at the same time (after the writing collaboration of MAGRPO,
arXiv 2508.04652, where two agents write two parts of one text that must fit in length, style and content).

Each poet has subjects, which its line must name, and rhymes, one of which must end it; it does not see those of the
other.  The lines must be equally long and rhyme.  The task does not say which length and which rhyme: the poets have to
coordinate without a message, and each lacks a family of rhymes, which the other does not know.  From the second turn
on, each sees both lines of the turn before and may write a new one.

One joint reward: how much a turn's couplet is better than the best of the episode before it, so that an episode's
rewards sum to its best score and neither holding back nor repeating pays.  No local reward.

The lines of a couplet: their words, how a message is read, and the score of two lines.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from random import Random

from ...experience import Message, Split, Task
from ..base import Skill, StepResult
from ..drawing import Drawing, Panel, draw_panels, tone_of
from ..judging import guarded
from ..splits import content_digest, split_of
from ..task_sampling import sample_tasks
from ..tool_calls import Tool, ToolFormat, text_tool
from ..turns import TurnTakingWorld, chat

FAMILIES: tuple[tuple[str, str], ...] = (("night", "light"), ("rain", "plain"), ("moon", "spoon"), ("day", "way"))
"""Words that rhyme with each other."""

SUBJECTS: tuple[str, ...] = tuple(
    "river stone forest garden mountain meadow castle harbour window candle mirror ladder bridge tower valley island "
    "desert orchard feather shadow thunder blossom lantern anchor compass harvest willow pebble kettle saddle".split()
)
"""The subjects of lines."""

FILLERS: tuple[str, ...] = tuple("a and beside beyond by from in into my of on over the through under with".split())

FAMILY: dict[str, int] = {word: family for family, words in enumerate(FAMILIES) for word in words}
"""The family of each rhyming word."""

LEXICON = frozenset({*FAMILY, *SUBJECTS, *FILLERS})


@dataclass(frozen=True)
class Half:
    """One poet's part of a task: the ``subjects`` that its line must name, and the ``rhymes`` that it may end with."""

    subjects: tuple[str, ...]
    rhymes: tuple[str, ...]

    @property
    def families(self) -> dict[int, str]:
        """Family -> the poet's word of it, in the order of :data:`FAMILIES`."""
        return {FAMILY[word]: word for word in sorted(self.rhymes, key=FAMILY.__getitem__)}


def read_line(text: str, max_words: int) -> tuple[str, ...]:
    """The words of a line; none where a word is unknown or repeated, or where there are more than ``max_words``."""
    words = tuple(text.split())
    if len(words) > max_words or len(set(words)) < len(words) or not LEXICON.issuperset(words):
        return ()
    return words


@dataclass(frozen=True)
class Fit:
    """How well two lines fit.  ``subjects``: the share of their subjects that they name.  ``length``: 1 where they
    have equally many words, 0.5 where the numbers differ by one, else 0.  ``rhyme``: 1 where each ends with a rhyme of
    its poet and the two are of one family, else 0.  All are 0 where a line is empty.
    """

    subjects: float = 0.0
    length: float = 0.0
    rhyme: float = 0.0

    @property
    def complete(self) -> bool:
        return self.subjects == self.length == self.rhyme == 1

    @property
    def score(self) -> float:
        """In [0, 1]; 1 where all is fulfilled, 0 where no subject is named."""
        return self.subjects * (1 + self.length + self.rhyme) / 3


def fit(halves: Sequence[Half], lines: Sequence[Sequence[str]]) -> Fit:
    """How well the two poets' ``lines`` fulfil their ``halves`` of the task."""
    if not all(lines):
        return Fit()
    is_named = [subject in line for half, line in zip(halves, lines, strict=True) for subject in half.subjects]
    ends = [FAMILY[line[-1]] if line[-1] in half.rhymes else None for half, line in zip(halves, lines, strict=True)]
    difference = abs(len(lines[0]) - len(lines[1]))
    return Fit(
        subjects=sum(is_named) / len(is_named),
        length={0: 1.0, 1: 0.5}.get(difference, 0.0),
        rhyme=float(ends[0] is not None and ends[0] == ends[1]),
    )


def compose(subjects: Sequence[str], end: str, length: int, rng: Random) -> str:
    """A line of ``length`` words, at least one more than ``subjects``: these in their order, fillers before each, the
    last first, and ``end``.
    """
    fillers = rng.sample(FILLERS, length - len(subjects) - 1)
    line = [end]
    for subject in reversed(subjects):
        line = [*fillers[:1], subject, *line]
        fillers = fillers[1:]
    return " ".join([*fillers, *line])


def vocabulary() -> list[str]:
    """Every word of observations and lines."""
    words = "first second couplet subjects rhymes mine theirs none malformed".split()
    return [*words, *SUBJECTS, *FILLERS, *FAMILY]


FIRST, SECOND = "first", "second"
WRITE = text_tool("write", "Give your line of the couplet.", "line", "its words, separated by blanks")
LENGTH = 5
"""Words of an expert's line."""


class Couplet(TurnTakingWorld):
    """Two lines that must name their subjects, be equally long and rhyme.

    ``rhymes``: the number of families of rhymes that each poet has a word of, 3 or 4 (of 4).  With 3, no convention
    rhymes in more than 10 of 16 couplets of one turn.  ``max_words`` bounds a line.
    ``tools``: the poets call ``write`` in this form (:mod:`..tool_calls`).
    """

    name = "couplet"

    def __init__(
        self, *, horizon: int = 2, rhymes: int = 3, max_words: int = 8, tools: ToolFormat | None = None
    ) -> None:
        super().__init__(stages=((FIRST, SECOND),), horizon=horizon, tools=tools)
        if not len(FAMILIES) < 2 * rhymes <= 2 * len(FAMILIES):
            least = len(FAMILIES) // 2 + 1
            raise ValueError(
                f"env.rhymes must be in [{least}, {len(FAMILIES)}], got {rhymes}: fewer may have no family in common"
            )
        if max_words < LENGTH + 1:
            raise ValueError(f"env.max_words must be at least {LENGTH + 1}, got {max_words}")
        self.rhymes, self.max_words = rhymes, max_words
        self._halves: tuple[Half, ...] = ()
        self._lines: tuple[tuple[str, ...], ...] | None = None

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, lambda rng: self._draw(split, rng), max_rejections=1000)

    def _draw(self, split: Split, rng: Random) -> Task:
        """The id of a couplet is a digest of its two halves, in any order."""
        pairs = _pairs(split)
        mine, theirs = rng.choice(pairs), rng.choice(pairs)
        while set(mine) & set(theirs):
            theirs = rng.choice(pairs)
        ends = [rng.sample(family, 2) for family in FAMILIES]  # a word of each family for each poet
        halves = []
        for poet, pair in enumerate((mine, theirs)):
            families = rng.sample(range(len(FAMILIES)), self.rhymes)
            halves.append(Half(tuple(rng.sample(pair, 2)), tuple(ends[family][poet] for family in families)))
        form = sorted((sorted(half.subjects), sorted(half.rhymes)) for half in halves)
        return Task(f"{self.name}-{content_digest(repr(form))}", split, dict(zip(self.agents, halves, strict=True)))

    # ---- steps ----------------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> None:
        self._begin()
        self._halves = tuple(task.data[agent] for agent in self.agents)
        self._lines = None

    def _prompt(self, agent: str) -> list[Message]:
        me = self.agents.index(agent)
        half = self._halves[me]
        words = ["subjects", *half.subjects, "rhymes", *half.rhymes]
        for owner, place in (("mine", me), ("theirs", 1 - me)):
            words += [owner, *(["none"] if self._lines is None else self._lines[place] or ["malformed"])]
        return chat(f"{agent} {self.name}", " ".join(words))

    def _tools(self, agent: str) -> Sequence[Tool]:
        return (WRITE,)

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        self._lines = tuple(guarded((), read_line, actions[agent], self.max_words) for agent in self.agents)
        quality = fit(self._halves, self._lines)
        self._next_turn(done=quality.complete)
        return StepResult(
            local=dict.fromkeys(self.agents, 0.0),
            team=self._gain(quality.score),
            done=self._done,
            success=quality.complete,
            info={
                "subjects": quality.subjects,
                "length": quality.length,
                "rhyme": quality.rhyme,
                "empty_or_malformed": sum(not line for line in self._lines) / len(self._lines),
            },
        )

    def draw(self) -> Drawing:
        """What each poet must name and may end with, the lines, and how well they fit."""
        panels = []
        for agent, half in zip(self.agents, self._halves, strict=True):
            words = f"subjects {' '.join(half.subjects)}\nrhymes {' '.join(half.rhymes)}"
            panels.append(Panel(f"{agent}'s part", words))
        if self._lines is not None:
            lines = zip(self.agents, self._lines, strict=True)
            panels += [Panel(agent, " ".join(line) or "malformed") for agent, line in lines]
            quality = fit(self._halves, self._lines)
            words = f"subjects {quality.subjects:g}, length {quality.length:g}, rhyme {quality.rhyme:g}"
            panels.append(Panel(f"score {quality.score:.3g}", words, tone_of(quality.score)))
        return draw_panels("Couplet", panels)

    def _state(self) -> tuple[Hashable, ...]:
        return (self._halves, self._lines)

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts follow a convention; novices write well, but without one; flawed poets write badly.

        Experts write lines of five words.  Where another turn may follow, an expert's first line signals the family
        that it lacks: it ends with the next family.  Else it takes the first family that, as far as it knows, both
        have.  A novice forgets a subject once in ten lines, mostly writes five words, else four or six, and ends with
        any of its rhymes; after the first turn it follows the other's line in length and rhyme (9 in 20), repeats its
        own (9 in 20) or chooses anew.  A flawed poet names one subject and ends with any word.
        """
        me = self.agents.index(agent)
        half = self._halves[me]
        if skill == "expert":
            return compose(half.subjects, half.families[self._convention(me)], LENGTH, rng)
        if skill == "flawed":
            return compose([rng.choice(half.subjects)], rng.choice([*FAMILY]), rng.randint(3, 6), rng)
        length, end = rng.choice((4, 5, 5, 5, 6)), rng.choice(half.rhymes)
        choice = rng.random()
        if self._lines is not None and choice < 0.9:
            model = self._lines[1 - me] if choice < 0.45 else self._lines[me]
            if model:
                length = min(max(len(model), 4), 6)
                end = half.families.get(FAMILY.get(model[-1], -1), end)
        subjects = half.subjects if rng.random() < 0.9 else half.subjects[:1]
        return compose(subjects, end, length, rng)

    def _convention(self, me: int) -> int:
        """The family that an expert ends with."""
        own = list(self._halves[me].families)
        count = len(FAMILIES)
        missing = next((family for family in range(count) if family not in own), None)
        if missing is None:
            return own[0]
        if self._lines is None:
            return (missing + 1) % count if self.horizon > 1 else own[0]
        other = self._lines[1 - me]
        signal = FAMILY.get(other[-1]) if other else None
        missing_there = None if signal is None else (signal - 1) % count
        return next(family for family in own if family != missing_there)


@cache
def _pairs(split: Split) -> list[tuple[str, str]]:
    """The pairs of subjects that belong to ``split``, decided by the words alone."""
    pairs = combinations(SUBJECTS, 2)
    return [pair for pair in pairs if split_of(content_digest(" ".join(sorted(pair)))) == split]

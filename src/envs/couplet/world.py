"""Couplet: two poets write the two lines of a couplet at the same time (after the writing collaboration of MAGRPO,
arXiv 2508.04652, where two agents write two parts of one text that must fit in length, style and content).

Each poet is given subjects, which its line must name, and rhymes, one of which must end it; it does not see what the
other is given.  The lines must be equally long and rhyme.  Which length and which rhyme is nobody's to say: the poets
have to agree on it without a word, and each lacks a family of rhymes, which the other does not know.  From the second
turn on, each sees both lines of the turn before and may write anew.

One joint reward: how much a turn's couplet is better than the best of the episode before it, so that an episode's
rewards sum to its best score and neither holding back nor repeating pays.  No local reward.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from functools import cache
from hashlib import blake2b
from itertools import combinations
from random import Random
from typing import Self

from ...experience import Message, Split, Task
from ..base import Skill, StepResult, TeamEnv
from ..checks import check_agent, check_least
from ..drawing import different
from ..grid.board import split_of
from .lines import FAMILIES, FAMILY, SUBJECTS, Half, compose, fit, read_line

FIRST, SECOND = "first", "second"
LENGTH = 5
"""Words of an expert's line."""


class Couplet(TeamEnv):
    """Two lines that must name their subjects, be equally long and rhyme.

    ``rhymes``: the number of families of rhymes that each poet has a word of, 3 or 4 (of 4).  With 3, no agreement
    made beforehand rhymes in more than 10 of 16 couplets of one turn.  ``max_words`` bounds a line.
    """

    name = "couplet"

    def __init__(self, *, horizon: int = 2, rhymes: int = 3, max_words: int = 8) -> None:
        check_least("horizon", horizon, 1)
        if not len(FAMILIES) < 2 * rhymes <= 2 * len(FAMILIES):
            least = len(FAMILIES) // 2 + 1
            raise ValueError(
                f"env.rhymes must be in [{least}, {len(FAMILIES)}], got {rhymes}: fewer may have no family in common"
            )
        if max_words < LENGTH + 1:
            raise ValueError(f"env.max_words must be at least {LENGTH + 1}, got {max_words}")
        self.agents, self.horizon, self.turn = (FIRST, SECOND), horizon, 0
        self.rhymes, self.max_words = rhymes, max_words
        self._halves: tuple[Half, ...] = ()
        self._lines: tuple[tuple[str, ...], ...] | None = None
        self._best, self._done = 0.0, True

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return different(self.name, split, count, seed, lambda rng: self._draw(split, rng), patience=1000)

    def _draw(self, split: Split, rng: Random) -> Task:
        """A couplet is known by what the two poets are given, whoever writes which line."""
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
        digest = blake2b(repr(form).encode(), digest_size=6).hexdigest()
        return Task(f"{self.name}-{digest}", split, dict(zip(self.agents, halves, strict=True)))

    # ---- the contract ---------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> None:
        self._halves = tuple(task.data[agent] for agent in self.agents)
        self.turn, self._lines, self._best, self._done = 0, None, 0.0, False

    def next_agents(self) -> tuple[str, ...]:
        return () if self._done else self.agents

    def observe(self, agent: str) -> list[Message]:
        me = self._place(agent)
        half = self._halves[me]
        words = ["subjects", *half.subjects, "rhymes", *half.rhymes]
        for who, place in (("mine", me), ("theirs", 1 - me)):
            words += [who, *(["none"] if self._lines is None else self._lines[place] or ["malformed"])]
        return [{"role": "system", "content": f"{agent} {self.name}"}, {"role": "user", "content": " ".join(words)}]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        if self._done or set(actions) != set(self.agents):
            expected = "no line: the episode is over or not begun" if self._done else f"a line of {FIRST} and {SECOND}"
            raise ValueError(f"{self.name} expects {expected}, got one of {', '.join(actions) or 'nobody'}")
        self._lines = tuple(read_line(actions[agent], self.max_words) for agent in self.agents)
        found = fit(self._halves, self._lines)
        gain = max(0.0, found.score - self._best)
        self._best = max(self._best, found.score)
        self.turn += 1
        self._done = found.complete or self.turn >= self.horizon
        return StepResult(
            local=dict.fromkeys(self.agents, 0.0),
            team=gain,
            done=self._done,
            success=found.complete,
            info={
                "subjects": found.subjects,
                "length": found.length,
                "rhyme": found.rhyme,
                "empty_or_malformed": sum(not line for line in self._lines) / len(self._lines),
            },
        )

    def fork(self) -> Self:
        # No field is ever changed in place, and the world draws no noise.
        return copy.copy(self)

    def state_key(self) -> Hashable:
        return (self.turn, self._done, self._halves, self._lines, self._best)

    def _place(self, agent: str) -> int:
        check_agent(self.name, self.agents, agent)
        return self.agents.index(agent)

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts keep an agreement; novices write well, each to its own taste; bunglers do not.

        Experts write lines of five words.  Where another turn may follow, an expert's first line tells what it lacks:
        it ends with the family after the missing one.  Else it takes the first family that, as far as it knows, both
        have.  A novice forgets a subject once in ten lines, mostly writes five words, else four or six, and ends with
        any of its rhymes; having seen the other's line it follows that in length and rhyme (9 in 20), stays with its
        own (9 in 20) or starts afresh.  A bungler names one subject and ends with any word.
        """
        me = self._place(agent)
        half = self._halves[me]
        if skill == "expert":
            return compose(half.subjects, half.families[self._agreed(me)], LENGTH, rng)
        if skill == "bungler":
            return compose([rng.choice(half.subjects)], rng.choice([*FAMILY]), rng.randint(3, 6), rng)
        length, end = rng.choice((4, 5, 5, 5, 6)), rng.choice(half.rhymes)
        mood = rng.random()
        if self._lines is not None and mood < 0.9:
            model = self._lines[1 - me] if mood < 0.45 else self._lines[me]
            if model:
                length = min(max(len(model), 4), 6)
                end = half.families.get(FAMILY.get(model[-1], -1), end)
        subjects = half.subjects if rng.random() < 0.9 else half.subjects[:1]
        return compose(subjects, end, length, rng)

    def _agreed(self, me: int) -> int:
        """The family that an expert ends with."""
        own = list(self._halves[me].families)
        count = len(FAMILIES)
        lacking = next((family for family in range(count) if family not in own), None)
        if lacking is None:
            return own[0]
        if self._lines is None:
            return (lacking + 1) % count if self.horizon > 1 else own[0]
        other = self._lines[1 - me]
        told = FAMILY.get(other[-1]) if other else None
        theirs = None if told is None else (told - 1) % count
        return next(family for family in own if family != theirs)


@cache
def _pairs(split: Split) -> list[tuple[str, str]]:
    """The pairs of subjects that belong to ``split``, decided by the words alone."""
    digests = {
        pair: blake2b(" ".join(sorted(pair)).encode(), digest_size=6).hexdigest() for pair in combinations(SUBJECTS, 2)
    }
    return [pair for pair, digest in digests.items() if split_of(digest) == split]

"""Writing: two agents write the two parts of one text, as published at the same time (MAGRPO, arXiv 2508.04652).

``tldr``: a concise and a detailed summary of a post.  ``arxiv``: background and method of an introduction to a paper,
from its abstract.  ``lines``: the small-scale variant, two lines of a few words about six.

Neither sees the other's text before it is written, but in the orders of the publication's baselines
(:mod:`troupe.envs.turns`).  The reward is about how the two fit: it is joint, see :mod:`.reward`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from random import Random
from typing import Literal

from ...experience import Message, Split, Task
from ..base import Skill, StepResult
from ..couplet.world import FILLERS, SUBJECTS
from ..datasets import DataSplits, ItemSource, load_splits
from ..drawing import Drawing, Panel, draw_panels, tone_of
from ..judging import guarded
from ..setting_checks import check_fraction
from ..splits import split_of
from ..task_sampling import sample_tasks
from ..tool_calls import Tool, ToolFormat, text_tool
from ..turns import Order, TurnTakingWorld, chat, stages_of
from .articles import SPLIT, Article, small_article, small_words
from .prompts import EMPTY_LINE, EXAMPLES, MARKS, OWNERS, SOLO_SYSTEM, SYSTEM, WHEN, WRITTEN_MARK
from .reward import LINKS, POINTS, STYLES, TextScore, score, vocabulary

Kind = Literal["tldr", "arxiv", "lines"]
SOLO = "solo"
WRITE = text_tool("write", "Give what you write.")

AGENTS: Mapping[str, tuple[str, str]] = {
    "tldr": ("concise", "detailed"),
    "arxiv": ("background", "method"),
    "lines": ("concise", "detailed"),
}
"""The agents by kind, in the order of their texts."""
COMPLETE = POINTS - 0.4 * 0.6 - 1e-6
"""The points of a success: of the transition words, those of one purpose."""


class Writing(TurnTakingWorld):
    """Two texts about an article.

    ``train``, ``validation`` and ``test`` are the sources of each split for ``kind`` tldr and arxiv: tables, or
    generated posts.  Without sources for validation or test, a tenth of the training articles, decided by their
    content, is held out for each.

    The team reward of a turn is the amount by which its points (3 at most) exceed the best of the episode before it.
    ``on_topic`` in [0, 1] is not the publication's, whose reward does not read the article: with 1 the points are
    multiplied by the share of the two texts' vocabulary that is the article's; 0 is as published.  An episode is a
    success, and ends, where each level is fulfilled: all points but those of further transition words.

    ``order``: as published ``simultaneous``; see :data:`~troupe.envs.turns.Order` for those of its baselines.

    ``examples``: how many worked examples of :data:`~.prompts.EXAMPLES` each prompt has.

    ``team=solo``: one agent writes both texts, with ``mark`` between them; None: that of :data:`~.prompts.MARKS`.  Two
    line breaks are described as an empty line.

    ``tools``: agents call ``write`` in this form (:mod:`..tool_calls`).
    """

    name = "writing"

    def __init__(
        self,
        *,
        kind: Kind = "lines",
        team: Literal["pair", "solo"] = "pair",
        order: Order = "simultaneous",
        horizon: int = 1,
        train: Sequence[ItemSource[Article]] = (),
        validation: Sequence[ItemSource[Article]] = (),
        test: Sequence[ItemSource[Article]] = (),
        on_topic: float = 0.0,
        max_chars: int = 4000,
        examples: int = 0,
        mark: str | None = None,
        tools: ToolFormat | None = None,
    ) -> None:
        if kind not in STYLES:
            raise ValueError(f"env.kind={kind} is unknown; known are {', '.join(STYLES)}")
        if team not in ("pair", "solo"):
            raise ValueError(f"env.team must be pair or solo, got {team}")
        stages = stages_of(self.name, order, AGENTS[kind] if team == "pair" else (SOLO,), horizon)
        super().__init__(stages=stages, horizon=horizon, tools=tools)
        check_fraction("on_topic", on_topic)
        if kind != "lines" and not train:
            raise ValueError(f"env.train: kind={kind} needs a table of articles")
        if max_chars < 1:
            raise ValueError(f"env.max_chars must be at least 1, got {max_chars}")
        if mark is not None and (kind == "lines" or (not mark.strip() and mark != "\n\n")):
            raise ValueError(f"env.mark must be words or two line breaks, and null for kind=lines, got {mark!r}")
        known = EXAMPLES.get(kind, ())
        if not 0 <= examples <= len(known):
            raise ValueError(f"env.examples must be in [0, {len(known)}] for kind={kind}, got {examples}")
        self.examples = known[:examples]
        self.mark = MARKS[kind] if mark is None else mark
        self.kind, self.style, self.on_topic, self.max_chars = kind, STYLES[kind], on_topic, max_chars
        self._sources: dict[Split, Sequence[ItemSource[Article]]] = {
            "train": train,
            "validation": validation,
            "test": test,
        }
        self.order = order
        self._article = ""
        self._texts: tuple[str, ...] | None = None
        self._first: str | None = None  # in this turn
        self._judged: tuple[TextScore, float] | None = None  # the texts' levels, and their points

    # ---- tasks ----------------------------------------------------------------------------------------------------

    @cached_property
    def splits(self) -> DataSplits[Article]:
        """The articles of the sources, read on first use."""
        return load_splits(self.name, self._sources, split_of)

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        if self.kind != "lines":
            return self.splits.tasks(split, count, seed)
        return sample_tasks(self.name, split, count, seed, self._draw, max_rejections=1000)

    def _draw(self, rng: Random) -> Task:
        article = small_article(rng)
        return Task(f"{self.name}-{article.key}", split_of(article.key), article.task_data)

    # ---- steps ----------------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> None:
        self._begin()
        self._article, self._texts, self._first, self._judged = task.data["article"], None, None, None

    def _prompt(self, agent: str) -> list[Message]:
        me = 0 if agent == SOLO else self.agents.index(agent)
        places = (("mine", me), ("theirs", 1 - me))  # of one agent alone: the first and the second
        if self.kind == "lines":
            words = ["article", self._article]
            for owner, place in places:
                text = self._visible(owner, place)
                words += [owner, "none" if text is None else text or "malformed"]
            return chat(f"{agent} {self.name}", " ".join(words))
        if agent == SOLO:
            between = WRITTEN_MARK.format(mark=self.mark) if self.mark.strip() else EMPTY_LINE
            system = SOLO_SYSTEM[self.kind].format(between=between)
        else:
            system = SYSTEM[agent].format(when=WHEN[self.order][me])
        messages: list[Message] = [{"role": "system", "content": system}]
        for article, *texts in self.examples:
            answer = self.mark.join(texts) if agent == SOLO else texts[me]
            messages.append({"role": "user", "content": self._shown(article)})
            messages.append({"role": "assistant", "content": self._said(WRITE, answer)})
        parts = [self._shown(self._article)]
        if self._texts is not None:
            alone = agent == SOLO
            owners = {"mine": "Your first text", "theirs": "Your second text"} if alone else OWNERS
            parts += [f"{owners[o]} of the turn before:\n{self._texts[place][: self.max_chars]}" for o, place in places]
            parts.append(f"Write {'both' if alone else 'yours'} anew, so that the two fit better.")
        if self._first is not None:
            parts.append(f"Your partner's text:\n{self._first[: self.max_chars]}")
        return [*messages, {"role": "user", "content": "\n\n".join(parts)}]

    def _shown(self, article: str) -> str:
        return f"{'Post' if self.kind == 'tldr' else 'Abstract'}:\n{article[: self.max_chars]}"

    def _visible(self, owner: str, place: int) -> str | None:
        """The text at ``place``: of the turn before, or of this turn where its author has written it already."""
        if owner == "theirs" and self._first is not None:
            return self._first
        return None if self._texts is None else self._texts[place]

    def _tools(self, agent: str) -> Sequence[Tool]:
        return (WRITE,)

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        if self.order == "sequential" and self.agents[0] in actions:
            self._first = guarded("", self._read, actions[self.agents[0]])
            self._next_stage()
            return self._unjudged(actions, malformed=not self._first)
        texts = [actions.get(agent, self._first or "") for agent in self.agents]
        if self.agents == (SOLO,):
            parts = texts[0].strip().split(self.mark)
            texts = parts if len(parts) == 2 else ["", ""]
        first, second = (guarded("", self._read, text) for text in texts)
        self._texts, self._first = (first, second), None
        if self.order == "discussion" and self.turn == 0:
            self._next_turn()
            return self._unjudged(actions, malformed=((not first) + (not second)) / 2)
        result = guarded(TextScore(), score, first, second, self.style)
        topic = topic_share(first + "\n" + second, self._article, self.style.stop_words)
        points = result.points * (1 - self.on_topic + self.on_topic * topic)
        self._judged = result, points
        complete = points > COMPLETE
        self._next_turn(done=complete)
        return StepResult(
            local=dict.fromkeys(actions, 0.0),
            team=self._gain(points),
            done=self._done,
            success=complete,
            info={
                **asdict(result),
                "points": points,
                "on_topic": topic,
                "empty_or_malformed": ((not first) + (not second)) / 2,
            },
        )

    def _unjudged(self, actions: Mapping[str, str], *, malformed: float) -> StepResult:
        """Of one of two texts, and of drafts."""
        return StepResult(dict.fromkeys(actions, 0.0), 0.0, False, False, info={"empty_or_malformed": malformed})

    def _read(self, text: str) -> str:
        """The text as it is judged: without blanks around it; small lines have words of the lexicon alone."""
        text = text.strip()
        return text if self.kind != "lines" or set(text.split()) <= _LEXICON else ""

    def draw(self) -> Drawing:
        """The article, both texts, and their points by level."""
        panels = [Panel("article", self._article)]
        if self._texts is not None:
            texts = zip(AGENTS[self.kind], self._texts, strict=True)
            panels += [Panel(name, text or "none could be read") for name, text in texts]
        if self._first is not None:
            panels.append(Panel(f"{self.agents[0]}, of this turn", self._first or "none could be read"))
        if self._judged is not None:
            levels, points = self._judged
            words = ", ".join(f"{level} {value:.3g}" for level, value in asdict(levels).items())
            tone = "good" if points > COMPLETE else tone_of(points / POINTS)
            panels.append(Panel(f"{points:.3g} of {POINTS:g} points", words, tone))
        return draw_panels("Writing", panels)

    def _state(self) -> tuple[Hashable, ...]:
        return (self._article, self._texts, self._first)

    # ---- demonstrations -------------------------------------------------------------------------------------------

    @property
    def has_demonstrations(self) -> bool:
        return self.kind == "lines"

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Lines: experts write the first two, or three, keywords in alphabetical order, which fit.  Novices write good
        lines of any length from the keywords, some of them also about other things.  Flawed ones write fillers.
        """
        if self.kind != "lines":
            raise ValueError(f"env.kind={self.kind} has no demonstrators")
        if agent == SOLO:
            first, second = (self._line(name, rng, skill) for name in AGENTS["lines"])
            return f"{first} {SPLIT} {second}"
        return self._line(agent, rng, skill)

    def _line(self, agent: str, rng: Random, skill: Skill) -> str:
        keywords = self._article.split()
        if skill == "flawed":
            return " ".join(rng.sample(FILLERS, rng.randint(1, 6)))
        if skill == "expert":
            return " ".join(
                ["the", *keywords[:2]] if agent == AGENTS["lines"][0] else ["then", "the", *keywords[:3], "of"]
            )
        known = keywords if rng.random() < 0.8 else [*keywords, *rng.sample(SUBJECTS, 3)]
        line: list[str] = [rng.choice(LINKS)] if rng.random() < 0.5 else []
        for word in rng.sample(known, rng.randint(1, 4)):
            line += [rng.choice(FILLERS), word] if rng.random() < 0.6 else [word]
        return " ".join(line)


_LEXICON = frozenset(small_words()) - {SPLIT}


def topic_share(text: str, article: str, stop_words: frozenset[str]) -> float:
    """The share of the vocabulary of ``text`` without stop words that is that of ``article``; 0 where it is empty."""
    words = vocabulary(text) - stop_words - frozenset(LINKS)
    return len(words & vocabulary(article)) / len(words) if words else 0.0

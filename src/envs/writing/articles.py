"""The articles about which is written: rows of data sets, and small ones that are made of words.

Short posts in English from fixed parts: what a small pretrained model on a CPU can read in time.

A post is somebody's trouble with another person: a *situation* (a person and what they did), how that began, what the
writer tried, and a question.  There is one post per situation, so that no two posts, and no two splits, share one.
All posts have the same few hundred words: what is held out are situations, not a vocabulary or a style.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, Final

from ..couplet.world import FILLERS, SUBJECTS
from ..datasets import DataSource, ItemSource, Table, UnusableRow
from ..splits import content_digest
from .reward import LINKS, vocabulary

SPLIT: Final = "|"
"""Between the lines of one agent alone."""

KEYWORDS = 6
"""Words of a small article."""


@dataclass(frozen=True)
class Article:
    """A text to write about."""

    text: str

    @property
    def key(self) -> str:
        """Equal for texts that differ in case, blanks or punctuation alone."""
        return content_digest("".join(sign for sign in self.text.casefold() if sign.isalnum()), size=8)

    @property
    def task_data(self) -> Mapping[str, Any]:
        return {"article": self.text}

    def contradicts(self, other: Article) -> bool:
        """Never: an article has no answer."""
        return False


COLUMNS: Final = {"tldr": "prompt", "arxiv": "abstract_text"}
"""The column that is read, by kind of table."""


class ArticleSource(DataSource[Article]):
    """A table of articles.  ``kind``: ``tldr`` (column ``prompt``, which ends with ``TL;DR:``) or ``arxiv`` (column
    ``abstract_text``).  ``path``, ``split``, ``config`` and ``revision`` are those of :class:`..datasets.table.Table`.
    """

    def __init__(
        self, kind: str, path: str, split: str = "train", config: str | None = None, revision: str | None = None
    ) -> None:
        if kind not in COLUMNS:
            raise ValueError(f"env.train: kind={kind} of {path} is unknown; known are {', '.join(COLUMNS)}")
        self.column = COLUMNS[kind]
        super().__init__(Table(path, split, config, revision), {self.column: str})

    def item(self, row: Mapping[str, Any]) -> Article:
        text = row[self.column].strip().removesuffix("TL;DR:").strip()
        if not vocabulary(text):
            raise UnusableRow("no words")
        return Article(text)


def small_article(rng: Random) -> Article:
    """:data:`KEYWORDS` different subjects."""
    return Article(" ".join(sorted(rng.sample(SUBJECTS, KEYWORDS))))


def small_words() -> list[str]:
    """Every word of small articles, their prompts, and the lines about them."""
    return [
        SPLIT,
        *"concise detailed solo writing article mine theirs none malformed".split(),
        *SUBJECTS,
        *FILLERS,
        *LINKS,
    ]


PEOPLE: Final = (
    *("roommate", "neighbor", "sister", "brother", "boss", "cousin", "best friend", "coworker", "uncle", "aunt"),
    *("father", "mother", "landlord", "nephew", "girlfriend", "boyfriend", "teammate", "stepbrother", "grandmother"),
    *("classmate", "manager", "study partner", "ex", "stepmother", "business partner", "niece", "old friend"),
    *("sister-in-law", "tenant", "band mate"),
)
"""With whom the writer has trouble."""

TROUBLES: Final = (
    "borrowed my car last week and brought it back with a broken mirror",
    "keeps eating the lunch that I put in the fridge",
    "told everyone about my new job before I had signed the contract",
    "invited ten guests to the small dinner that I planned",
    "sold the old piano that we both learned to play on",
    "lost the only key to the garden shed",
    "plays loud drums every night until two in the morning",
    "let my dog out of the yard and did not look for him",
    "owes me four hundred dollars from our trip to the lake",
    "wants to move into my spare room without paying rent",
    "painted my bike bright orange as a surprise",
    "read my private diary and laughed about it at a party",
    "canceled our trip to Spain one day before the flight",
    "spilled coffee on my laptop and said nothing about it",
    "copied my essay and handed it in two hours before me",
    "forgot my birthday for the third year in a row",
    "threw away a box with all of my old letters",
    "uses my streaming account and changed the password",
    "posted an ugly photo of me and will not take it down",
    "cut down the apple tree between our two houses",
    "gave my winter coat to a charity by mistake",
    "shows up late for every single plan that we make",
    "bought the same dress that I chose for the wedding",
    "never washes a dish after cooking in my kitchen",
    "promised to feed my fish and then left town",
    "crashed my drone into the roof of the school",
    "took the credit for a report that I wrote alone",
    "smokes inside the apartment although we agreed on a rule",
    "started a strict diet and lectures me at each meal",
    "returned my camping tent wet, torn and full of sand",
    "signed me up for a marathon without asking me",
    "gives my phone number to strangers who sell insurance",
    "parks a huge truck in front of my door",
    "adopted three kittens although I am allergic to cats",
    "spends our shared money on lottery tickets",
    "broke the window of my office during a game",
    "keeps calling me at work about small problems",
    "refuses to give back the guitar that I lent in May",
    "told my kids that their hamster is not sleeping",
    "borrowed my savings for a shop that closed in a month",
)
"""What the person did."""

BEGINNINGS: Final = (
    "We have known each other for six years and never had a real fight.",
    "It started in spring, when we both had a lot of stress.",
    "We see each other almost every day, so I cannot just ignore it.",
    "At first I thought that it was funny, but now it makes me angry.",
    "Our family says that I should stay calm and let it go.",
    "Last month we had a long talk about trust and respect.",
    "I am a quiet person and I hate to argue with people.",
    "Money is tight this year because I lost my second job.",
    "Everyone else seems to think that this is normal.",
    "It was the worst possible time, since my exams begin on Monday.",
)

ATTEMPTS: Final = (
    "I wrote a polite note, but there was no answer.",
    "I asked for an apology and got a shrug.",
    "I tried to joke about it, which made things worse.",
    "I offered to share the costs, and that was refused.",
    "I waited for two weeks and nothing has changed.",
    "I talked to a friend, who told me to be patient.",
    "I made a clear rule, and it was broken the next day.",
    "I stopped answering messages and now I feel guilty.",
    "I shouted once and we have not spoken since.",
    "I suggested that we meet for coffee and talk, but it never happened.",
)

QUESTIONS: Final = (
    "Am I wrong to be upset about this?",
    "How can I solve this without losing the friendship?",
    "Should I ask for money or just forget it?",
    "What would you say in my place?",
    "Is it time to end this for good?",
    "How do I bring this up again without a fight?",
    "Should I tell the rest of the family?",
    "Do I have to forgive somebody who is not sorry?",
)


class GeneratedPosts(ItemSource[Article]):
    """All posts, one per situation; nothing is read or fetched."""

    def items(self, counts: Counter[str]) -> Iterator[Article]:
        """The posts, always the same and in the same order; none is left out."""
        for person, trouble in product(PEOPLE, TROUBLES):
            yield post(person, trouble)


def post(person: str, trouble: str) -> Article:
    """The post about a situation, whose other sentences are drawn by the situation itself."""
    rng = Random(f"{person}/{trouble}")
    sentences = [f"My {person} {trouble}.", *map(rng.choice, (BEGINNINGS, ATTEMPTS, QUESTIONS))]
    return Article(" ".join(sentences))

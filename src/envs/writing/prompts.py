"""The wording of Writing: what the agents are told, and worked examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .articles import SPLIT

MARKS: Mapping[str, str] = {"tldr": "[PARAGRAPH_SPLIT]", "arxiv": "[PARAGRAPH_SPLIT]", "lines": SPLIT}
"""What an agent alone writes between the two texts, by kind, unless ``env.mark`` is something else."""

SOLO_SYSTEM: Mapping[str, str] = {
    "tldr": "You write two summaries of a post: a short one of one or two plain sentences, then a long one, about "
    "twice as long, with more details and more different words, linked by transition words. {between}",
    "arxiv": "You write the introduction to a paper in two paragraphs of at least 128 words: background and "
    "motivation, then method and results, a little longer, both linked by transition words. {between}",
}
"""``between``: :data:`WRITTEN_MARK` or :data:`EMPTY_LINE`."""
WRITTEN_MARK = "Write {mark} between them, and nothing else around them."
EMPTY_LINE = "Leave an empty line between them, and write nothing else around them."

SYSTEM: Mapping[str, str] = {
    "concise": "You write the short summary of a post: one or two plain sentences with its main point. Your partner "
    "writes the long summary {when}. Answer with your summary alone.",
    "detailed": "You write the long summary of a post: about twice as long as a short one, with more details and more "
    "different words, linked by transition words. Your partner writes the short summary {when}; both "
    "should use the same terms. Answer with your summary alone.",
    "background": "You write the first part of the introduction to a paper: background and motivation, at least 128 "
    "words, linked by transition words. Your partner writes the second part, the method, {when}; both "
    "should use the same terms and be nearly as long. Answer with your paragraph alone.",
    "method": "You write the second part of the introduction to a paper: method and results, at least 128 words, a "
    "little longer than the first, linked by transition words. Your partner writes the first part, background and "
    "motivation, {when}; both should use the same terms. Answer with your paragraph alone.",
}
"""``when``: :data:`WHEN`."""

WHEN: Mapping[str, tuple[str, str]] = {
    "simultaneous": ("at the same time", "at the same time"),
    "discussion": ("at the same time", "at the same time"),
    "sequential": ("after you", "before you"),
}
"""When the partner of the first and of the second agent writes, by order."""

OWNERS: Mapping[str, str] = {"mine": "Your text", "theirs": "Your partner's text"}

EXAMPLES: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = {
    "tldr": (
        (
            "My roommate sold my old desk without asking me. We have shared a flat for two years. I wrote a note, but "
            "there was no answer. What should I do?",
            "My roommate sold my desk without asking me.",
            "My roommate sold my old desk without asking. However, we have lived together for two years, so I wrote a "
            "note, but nobody answered.",
        ),
    ),
}
"""Worked examples by kind: an article, the first text, the second.  A small model answers posts, rather than to
summarise them, without one."""

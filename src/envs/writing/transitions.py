"""Transition words by their purpose, and words that do not count as content.

MAGRPO's reward counts the purposes of which a text has a word.  The publication does not print its lists: the number of
purposes, 12, is its own, the words are ours.
"""

from __future__ import annotations

from typing import Final

TRANSITIONS: Final[dict[str, tuple[str, ...]]] = {
    "addition": ("also", "in addition", "furthermore", "moreover", "besides", "as well"),
    "contrast": ("however", "but", "although", "whereas", "nevertheless", "on the other hand", "despite"),
    "cause": ("because", "since", "due to", "owing to"),
    "effect": ("therefore", "thus", "hence", "as a result", "consequently", "so that"),
    "example": ("for example", "for instance", "such as", "e.g."),
    "order": ("first", "second", "next", "then", "finally", "last"),
    "time": ("before", "after", "while", "meanwhile", "during", "until", "when"),
    "emphasis": ("indeed", "in fact", "especially", "above all", "importantly", "notably"),
    "likeness": ("similarly", "likewise", "in the same way", "equally"),
    "condition": ("if", "unless", "provided that", "in case", "otherwise"),
    "restatement": ("in other words", "that is", "namely", "to put it"),
    "conclusion": ("in conclusion", "in summary", "overall", "in short", "to sum up"),
}
"""Purpose -> words and phrases, in lower case."""

STOP_WORDS: Final = frozenset(
    "a about above after again against all also am an and any are as at be because been before being below "
    "between both but by can could did do does doing down during each few for from further had has have having he "
    "her here hers him his how i if in into is it its itself just me more most my no nor not now of off on once "
    "only or other our out over own same she should so some such than that the their them then there these they "
    "this those through to too under until up very was we were what when where which while who whom why will with "
    "would you your".split()
)

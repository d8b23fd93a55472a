"""Prompts that contain earlier completions, token by token as they were sampled.

A chat template writes the earlier messages of an agent into its next prompt as text.  Tokenised again, a text need not
give the tokens that were sampled: the policy would read, and learn from, a prompt that it never continued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..experience import Completion, Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARK = "\ue000{}\ue001"
"""Stands for an earlier completion while the template writes the text around it; of Unicode's private use area."""


@dataclass(frozen=True)
class ExactPrompt:
    """``ids``: None where nothing is to be replaced.  ``missed``: whether an earlier completion is in the prompt in
    other tokens than were sampled."""

    ids: tuple[int, ...] | None = None
    missed: bool = False


def exact_prompt(
    tokenizer: PreTrainedTokenizerBase,
    render: Callable[[Sequence[Message]], str],
    messages: Sequence[Message],
    said: Sequence[Completion],
    safe: Callable[[str], str],
    prefill: str = "",
) -> ExactPrompt:
    """The prompt of ``messages``, in which the assistant's are those of ``said`` where their texts are equal.

    ``render`` writes the chat template's text, ``safe`` the form that ``messages`` have of a text, which begins with
    ``prefill``, words that were given and not sampled.  A completion
    is missed where the message differs from it in blanks, where the messages are in another order, where the template
    changes it (Qwen3's leaves out earlier thoughts), where its tokens are not those of its text (a special token in it,
    a stop string after it), and where its tokens between those of the other texts are not the whole text's.

    Where completions of one text are more than its messages, the latest are taken: a memory leaves out the oldest.
    """
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    texts = [safe(each.text) for each in said]
    pairs = _in_order([messages[place]["content"] for place in places], texts)
    found = {places[i]: said[j] for i, j in pairs.items()}
    others = [messages[place]["content"].split() for place in places if place not in found]
    matched = set(pairs.values())
    missed = any(text.split() in others for j, text in enumerate(texts) if j not in matched)
    if not found:
        return ExactPrompt(None, missed)
    marks = {place: MARK.format(place) for place in found}
    marked = [
        {**each, "content": prefill + marks[place] if place in marks else each["content"]}
        for place, each in enumerate(messages)
    ]
    template, whole = render(marked), render(messages)
    ids: list[int] = []
    written = ""
    for place, completion in found.items():
        before, mark, template = template.partition(marks[place])
        tokens = _plain_tokens(tokenizer, completion, prefill)
        sampled = messages[place]["content"].removeprefix(prefill)
        if not mark or tokens is None or not whole.startswith(written + before + sampled):
            return ExactPrompt(None, True)
        written += before + sampled
        ids += [*tokenizer.encode(before, add_special_tokens=False), *tokens]
    ids += tokenizer.encode(template, add_special_tokens=False)
    plain = tokenizer.encode(whole, add_special_tokens=False)
    # SentencePiece writes a blank before each piece, and reads none at the begin of a text.
    if written + template != whole or tokenizer.decode(ids) != tokenizer.decode(plain):
        return ExactPrompt(None, True)
    return ExactPrompt(tuple(ids), missed)


def _in_order(texts: Sequence[str], said: Sequence[str]) -> dict[int, int]:
    """Which of ``said`` each of ``texts`` is, by index, both in their order: as many pairs of equals as there can be (a
    longest common subsequence), and of equals the latest.
    """
    lengths = [[0] * (len(said) + 1) for _ in range(len(texts) + 1)]
    for i, text in enumerate(texts):
        for j, other in enumerate(said):
            longer = lengths[i][j] + 1 if text == other else max(lengths[i][j + 1], lengths[i + 1][j])
            lengths[i + 1][j + 1] = longer
    pairs, i, j = {}, len(texts), len(said)
    while i and j:
        if texts[i - 1] == said[j - 1]:
            i, j = i - 1, j - 1
            pairs[i] = j
        elif lengths[i - 1][j] >= lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return dict(sorted(pairs.items()))


def _plain_tokens(tokenizer: PreTrainedTokenizerBase, completion: Completion, prefill: str) -> tuple[int, ...] | None:
    """The tokens of a completion without its end, which the template writes; None where they are not those of its text
    after ``prefill``, or would be read as more than text."""
    tokens = completion.token_ids
    special = set(tokenizer.all_special_ids)
    if completion.finish_reason == "stop" and tokens and tokens[-1] in special:
        tokens = tokens[:-1]
    if not tokens or not special.isdisjoint(tokens) or prefill + tokenizer.decode(list(tokens)) != completion.text:
        return None
    return tokens

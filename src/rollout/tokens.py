"""Tokens of a policy: those of a prompt that contains earlier completions, as they were sampled, and the text of each.

A chat template writes the earlier messages of an agent into its next prompt as text.  Tokenised again, a text need not
give the tokens that were sampled: the policy would read, and learn from, a prompt that it never continued.

The texts of the tokens of a completion, also of one that is being written, join to its text.  A token that ends within
a character has none; the one that completes it has the whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from ..experience import Completion, Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase
import asyncio
from contextlib import suppress

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

MARK = "\ue000{}\ue001"
"""Stands for an earlier completion while the template writes the text around it; of Unicode's private use area."""


REMEMBERED, LONGEST = 1 << 13, 1 << 13
"""Texts whose tokens are known, at most, and their characters; those that were asked for longest ago are forgotten."""


class TextTokens:
    """Tokenises texts for prompts.  What lies between two special tokens is read once: of a chat that grows, what is
    new.  ``joins``: whether texts that are tokenised one by one are the whole's, as SentencePiece's are not, which
    writes a blank before each.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer, self.special = tokenizer, frozenset(tokenizer.all_special_ids)
        names = sorted(tokenizer.all_special_tokens, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, names))})") if names else None
        self._ids = lru_cache(REMEMBERED)(self._tokenised)
        self.plain = lru_cache(REMEMBERED)(self._plain)
        self.joins = tokenizer.decode(self._tokenised("a") * 2) == "aa"
        texts = [f"{text}{name}{text}" for text in ("a", " a", "a\n", "\n\na ") for name in names]
        self._apart = self.joins and all(self._parts(text) == self._tokenised(text) for text in texts)

    def __call__(self, text: str) -> tuple[int, ...]:
        return self._parts(text) if self._apart else self._tokenised(text)

    @cached_property
    def speller(self) -> Tokenizer | None:
        """A copy of the tokenizer, which another thread may use meanwhile; None of one that is not Rust's."""
        from tokenizers import Tokenizer

        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        return None if backend is None else Tokenizer.from_str(backend.to_str())

    def _parts(self, text: str) -> tuple[int, ...]:
        parts = [text] if self._split is None else self._split.split(text)
        return tuple(token for part in parts if part for token in self._read(part))

    def _read(self, text: str) -> tuple[int, ...]:
        return self._ids(text) if len(text) <= LONGEST else self._tokenised(text)

    def _tokenised(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _plain(self, tokens: tuple[int, ...], ended: bool, text: str) -> tuple[int, ...] | None:
        """``tokens`` of a completion without its end, which the template writes; None where they are not those of
        ``text``, or would be read as more than text."""
        if ended and tokens and tokens[-1] in self.special:
            tokens = tokens[:-1]
        if not tokens or not self.special.isdisjoint(tokens) or self.tokenizer.decode(list(tokens)) != text:
            return None
        return tokens


@dataclass(frozen=True)
class ExactPrompt:
    """``ids``: None where nothing is to be replaced.  ``missed``: whether an earlier completion is in the prompt in
    other tokens than were sampled."""

    ids: tuple[int, ...] | None = None
    missed: bool = False


def exact_prompt(
    tokens_of: TextTokens,
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
        tokens = None
        if completion.text.startswith(prefill):
            ended, text = completion.finish_reason == "stop", completion.text.removeprefix(prefill)
            tokens = tokens_of.plain(completion.token_ids, ended, text)
        sampled = messages[place]["content"].removeprefix(prefill)
        if not mark or tokens is None or not whole.startswith(written + before + sampled):
            return ExactPrompt(None, True)
        written += before + sampled
        ids += [*tokens_of(before), *tokens]
    ids += tokens_of(template)
    if written + template != whole:
        return ExactPrompt(None, True)
    if not tokens_of.joins and tokens_of.tokenizer.decode(ids) != tokens_of.tokenizer.decode(list(tokens_of(whole))):
        return ExactPrompt(None, True)
    return ExactPrompt(tuple(ids), missed)


def _in_order(texts: Sequence[str], said: Sequence[str]) -> dict[int, int]:
    """Which of ``said`` each of ``texts`` is, by index, both in their order: as many pairs of equals as there can be (a
    longest common subsequence), and of equals the latest.
    """
    same = next((n for n, (a, b) in enumerate(zip(texts[::-1], said[::-1], strict=False)) if a != b), None)
    ends = min(len(texts), len(said)) if same is None else same  # of a chat that grows, all
    pairs = {len(texts) - n: len(said) - n for n in range(1, ends + 1)}
    texts, said = texts[: len(texts) - ends], said[: len(said) - ends]
    lengths = [[0] * (len(said) + 1) for _ in range(len(texts) + 1)]
    for i, text in enumerate(texts):
        for j, other in enumerate(said):
            longer = lengths[i][j] + 1 if text == other else max(lengths[i][j + 1], lengths[i + 1][j])
            lengths[i + 1][j + 1] = longer
    i, j = len(texts), len(said)
    while i and j:
        if texts[i - 1] == said[j - 1]:
            i, j = i - 1, j - 1
            pairs[i] = j
        elif lengths[i - 1][j] >= lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return dict(sorted(pairs.items()))


def spelled(tokenizer: Tokenizer, completion: Completion, begin: str) -> tuple[tuple[str, float], ...]:
    """The tokens of ``completion``, each with its log-probability; the first has the given words ``begin``, too."""
    stream = DecodeStream(skip_special_tokens=True)
    texts = [stream.step(tokenizer, token) or "" for token in completion.token_ids]
    return tuple(zip([begin + texts[0], *texts[1:]], completion.logprobs, strict=True)) if texts else ()


def telling(
    tokenizer: Tokenizer, listener: Callable[[int, str, float], None], begin: str
) -> Callable[[int, int, float], None]:
    """For :attr:`..experience.Request.on_token`: tells ``listener``, in this event loop, whose tokenizer it is."""
    loop, stream = asyncio.get_running_loop(), DecodeStream(skip_special_tokens=True)

    def tell(place: int, token: int, logprob: float) -> None:
        nonlocal stream
        if not place:
            stream = DecodeStream(skip_special_tokens=True)
        text = stream.step(tokenizer, token) or ""
        listener(place, text if place else begin + text, logprob)

    def on_token(place: int, token: int, logprob: float) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, place, token, logprob)

    return on_token

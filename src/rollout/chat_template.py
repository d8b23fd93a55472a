"""How a policy's prompts are written: ``policies.NAME.chat``, the arguments of its chat template beside the messages.

One of them, :data:`PREFILL`, is none of the template's: the words with which every answer begins.  They stand in the
prompt after the mark of the model's turn, so that the policy does not learn from them, and at the begin of the message.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from ..guards.prompt_writer import RAW, ChatTemplateError, HarmfulTemplateError, writer
from ..guards.trial import refusal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PREFILL = "prefill"
WORDS = 50
"""Of a vocabulary, that are tried after it."""

TRIAL_CPU_S, TRIAL_MEMORY = 10, 2 << 30
"""Of a tokenizer on trial: seconds, and bytes of address space."""
TRIAL_WALL_S = 120.0
LONGEST = 20_000
"""Characters of the longest message on trial."""
TEXTS = (
    "at 1,1",
    "",
    "a" * LONGEST,
    "Where? {{ 7 * 7 }}\n\n" * (LONGEST // 20),
    "\u00e9\u4e2d\U0001f642 " * (LONGEST // 4),
)
ROLES = (("user",), ("system", "user"), ("system", "user", "assistant", "user"))


def check_chat(key: str, tokenizer: PreTrainedTokenizerBase, chat: Mapping[str, Any]) -> None:
    """``key`` is the policy's, ``chat`` the arguments of its tokenizer's template, or :func:`raw_prompts`.

    Raises :class:`ChatTemplateError` where there is no template, and for an argument that it never names: whatever
    value it had, the prompt would be the same.
    """
    _check_prefill(key, tokenizer, prefill(chat))
    if is_raw(chat):
        return
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:
        raise ChatTemplateError(
            f"{key}.base: its tokenizer has no chat template to write prompts with; {key}.prompts=raw gives plain "
            f"text: {error}"
        ) from error
    try:
        names = writer(template).names
    except ChatTemplateError as error:
        raise ChatTemplateError(f"{key}.base: its chat template cannot be read: {error}") from error
    for name in chat.keys() - {PREFILL}:
        if name in _own():
            raise ChatTemplateError(f"{key}.chat.{name}: Troupe decides this itself")
        if name not in names:
            readable = ", ".join(sorted(names - _own())) or "nothing but the messages"
            raise ChatTemplateError(
                f"{key}.chat.{name}: the chat template of {key}.base does not read it; it reads {readable}"
            )


@cache
def _own() -> set[str]:
    """Arguments of ``apply_chat_template`` itself, which Troupe decides."""
    from transformers import PreTrainedTokenizerBase

    return {"messages", *inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters}


def _check_prefill(key: str, tokenizer: PreTrainedTokenizerBase, begin: str) -> None:
    """Raise :class:`ChatTemplateError` where what follows ``begin`` is written otherwise after it than alone, or where
    the tokenizer has no tokens for it."""
    if not begin:
        return
    ids = tokenizer.encode(begin, add_special_tokens=False)
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        raise ChatTemplateError(f"{key}.chat.{PREFILL}={begin!r}: {key}.base has no tokens for it")
    words = sorted({*tokenizer.get_vocab().values()} - {*tokenizer.all_special_ids})[:WORDS]
    if any(tokenizer.decode([*ids, word]) != begin + tokenizer.decode([word]) for word in words):
        raise ChatTemplateError(
            f"{key}.chat.{PREFILL}={begin!r}: after it {key}.base writes words otherwise; end it with a blank"
        )


def raw_prompts() -> dict[str, Any]:
    """In place of a template's arguments: prompts are written by :data:`..guards.prompt_writer.RAW`."""
    return {"chat_template": RAW}


def is_raw(chat: Mapping[str, Any]) -> bool:
    """Whether these are :func:`raw_prompts`, with :data:`PREFILL` or without."""
    return {name: value for name, value in chat.items() if name != PREFILL} == raw_prompts()


def prefill(chat: Mapping[str, Any]) -> str:
    """What every answer begins with; "" where nothing is given."""
    return str(chat.get(PREFILL, ""))


def written(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    chat: Mapping[str, Any],
) -> str:
    """The prompt of ``messages`` and ``tools``: what ``tokenizer.apply_chat_template`` writes with ``chat``, with the
    mark after which the model speaks, and :data:`PREFILL`.

    Raises :class:`ChatTemplateError`, and ``TypeError`` and ``RecursionError`` for what is no JSON.
    """
    own = {name: value for name, value in chat.items() if name not in ("chat_template", PREFILL)}
    given = {"messages": list(messages), "tools": tools, "documents": None, "add_generation_prompt": True}
    text = writer(template_of(tokenizer, chat, tools)).write({**tokenizer.special_tokens_map, **own, **given})
    return text + prefill(chat)


def template_of(
    tokenizer: PreTrainedTokenizerBase, chat: Mapping[str, Any], tools: Sequence[Mapping[str, Any]] | None
) -> str:
    """The template of a prompt; some tokenizers have one of its own for prompts with tools."""
    return tokenizer.get_chat_template(chat.get("chat_template"), None if tools is None else list(map(dict, tools)))


def try_prompts(key: str, tokenizer: PreTrainedTokenizerBase, chat: Mapping[str, Any]) -> None:
    """Write prompts for the policy ``key`` with the template of others, and read them with their tokenizer, both in
    processes with limits.

    Raises :class:`ChatTemplateError` where one takes too long, needs too much memory, makes far more of a text than it
    has, or reaches for Python.
    """
    try:
        prompts = _trial_prompts(tokenizer, chat)
    except ChatTemplateError as error:
        raise ChatTemplateError(f"{key}.base: its chat template cannot write prompts: {error}") from error
    if reason := _refusal(tokenizer.backend_tokenizer.to_str(), prompts):
        raise ChatTemplateError(f"{key}.base: its tokenizer cannot read prompts: {reason}")


def _trial_prompts(tokenizer: PreTrainedTokenizerBase, chat: Mapping[str, Any]) -> tuple[str, ...]:
    """At least one.  Raises :class:`ChatTemplateError`."""
    prompts, refusal = list[str](), ChatTemplateError()
    for roles, text in product(ROLES, TEXTS):
        try:
            prompts.append(written(tokenizer, [{"role": role, "content": text} for role in roles], None, chat))
        except HarmfulTemplateError:
            raise
        except ChatTemplateError as error:  # it does not take these roles, or this text
            refusal = error
    if not prompts:
        raise refusal
    return tuple(prompts)


@lru_cache(maxsize=16)
def _refusal(tokenizer: str, prompts: tuple[str, ...]) -> str:
    """The reason; "" where there is none."""
    asked = {"tokenizer": tokenizer, "prompts": prompts}
    return refusal("tokenizer", asked, memory=TRIAL_MEMORY, cpu_s=TRIAL_CPU_S, wall_s=TRIAL_WALL_S)

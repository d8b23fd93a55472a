"""The client of a policy: observation -> prompt tokens -> an engine's completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..envs.base import Listener, TeamEnv, WorldFailure
from ..envs.history import without_oldest
from ..envs.tool_calls import MARKS, ToolOffer
from ..experience import Completion, Message, MessageText, Request, Sampling, Task
from ..guards.prompt_writer import ChatTemplateError, writer
from .chat_codec import ChatCodec, without_markers
from .chat_template import is_raw, prefill, template_of, written
from .engines.base import ContextExceededError, Engine
from .engines.requests import derive
from .playing import Answer, Prompt, prompt_of
from .tokens import TextTokens, exact_prompt, spelled, telling

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase


class PromptError(ValueError):
    """An observation that is no prompt for a policy: too long for its context, with words outside its vocabulary, or
    with messages that its chat template refuses."""


class PromptTooLongError(PromptError):
    """An observation that exceeds the context of a policy."""


LONGEST_WORD = 100
"""Characters of a word that an error repeats."""
GAP = "\n[...]\n"
"""In place of what is left out of a message."""


@dataclass(frozen=True)
class PolicyClient:
    """A policy behind an engine, with its sampling."""

    policy: str
    engine: Engine
    tokenizer: PreTrainedTokenizerBase | ChatCodec
    context: int
    """Tokens that the model takes at most, prompt and completion together."""
    sampling: Sampling
    chat: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the tokenizer's chat template, beside the messages."""

    def prompt(self, env: TeamEnv, agent: str, task: Task, said: Sequence[Completion] = ()) -> Prompt:
        """The prompt of ``agent`` in the state of ``env``, an episode of ``task``.  The earlier completions ``said`` of
        the agent that its messages hold are in it token by token (:mod:`.tokens`).

        Where it exceeds the context because of what was said in the episode, its oldest turns are left out, one after
        the other (:func:`..envs.history.without_oldest`); where the last one is too long by itself, the middle of its
        longest messages: nothing that a model says may end a run, or lose an episode.  Before anything is said, and
        where the system message alone is too long, the world or the context is at fault: raises as :meth:`encode` does.
        The messages of a program that runs in the world may hold what was said anywhere: :class:`..envs.base.
        WorldFailure`, a lost episode.
        """
        try:
            return self._prompt(env, agent, task, said)
        except PromptError as error:
            if env.begins_at_reset:
                raise
            raise WorldFailure(str(error)) from error

    def _prompt(self, env: TeamEnv, agent: str, task: Task, said: Sequence[Completion]) -> Prompt:
        messages, tools, cut = prompt_of(env, agent), env.tools(agent), False
        limit: int | None = None
        while True:
            try:
                prompt = Prompt(self.encode(agent, task.task_id, messages, tools), cut)
                return self._exact(prompt, messages, tools, said, limit)
            except PromptTooLongError:
                if limit is not None or _at_start(env, task):
                    raise
            cut, shorter = True, without_oldest(messages)
            if shorter is None:
                limit = self._limit(messages, tools)
                shorter = _limited(self._safe(messages), limit, self._closed)
            messages = shorter

    def chat_prompt(
        self,
        agent: str,
        place: str,
        messages: Sequence[Message],
        tools: ToolOffer | None = None,
        said: Sequence[Completion] = (),
    ) -> Prompt:
        """The prompt of a chat outside of any world, with ``said`` as in :meth:`prompt`.  Raises as :meth:`encode`
        does; ``place`` is what it calls the chat."""
        offered = 0 if tools is None else len(json.dumps(tools.schemas))
        characters = offered + sum(len(message["content"]) for message in messages)
        if characters > self.context * (self._longest + 1):  # blanks are no tokens of closed vocabularies
            raise PromptTooLongError(
                f"agent '{agent}', {place}: messages of {characters} characters exceed the context of policy "
                f"'{self.policy}' ({self.context} tokens)"
            )
        return self._exact(Prompt(self.encode(agent, place, messages, tools)), messages, tools, said)

    def _exact(
        self,
        prompt: Prompt,
        messages: Sequence[Message],
        tools: ToolOffer | None,
        said: Sequence[Completion],
        limit: int | None = None,
    ) -> Prompt:
        """``prompt``, of ``messages``, with the tokens of ``said``, where there is room for them.  ``limit``: what the
        messages were shortened to."""
        if isinstance(self.tokenizer, ChatCodec) or not said:
            return prompt

        def render(messages: Sequence[Message]) -> str:
            return self._text(messages, tools)

        def shown(text: str) -> str:
            """What the messages have of a completion: one that was shortened is known again, and counted."""
            safe = self._without_special(text)
            return safe if limit is None else _without_middle(safe, limit, self._closed)

        exact = exact_prompt(self._tokens, render, self._safe(messages), said, shown, prefill(self.chat))
        if exact.ids is None:
            return replace(prompt, retokenised=exact.missed)
        ids = (*self._opening, *exact.ids)
        if self._room(ids) < 0:
            return replace(prompt, retokenised=True)
        return replace(prompt, ids=ids, retokenised=exact.missed)

    async def ask(
        self, env: TeamEnv, agent: str, task: Task, n: int, seed: int, *place: int | str, said: Sequence[Completion]
    ) -> Answer:
        """:meth:`complete` with the key of task, turn, agent and ``place``, from which with the run's ``seed`` comes
        the request's.

        So a request draws the same in whatever order requests come; two with the same key get the same draws.
        """
        key = (task.task_id, env.turn, agent, *place)
        return await self.complete(env, agent, task, n, derive(seed, *key), key, said)

    async def complete(
        self,
        env: TeamEnv,
        agent: str,
        task: Task,
        n: int,
        seed: int,
        key: tuple[int | str, ...],
        said: Sequence[Completion] = (),
    ) -> Answer:
        """:meth:`prompt` and ``n`` completions of it, each with a :class:`..experience.MessageText`.

        The context of a server is not known here.  Where it says that the prompt exceeds it, parts are left out as
        :meth:`prompt` does: a turn at each attempt, then half of the characters of the longest messages.
        """
        prompt, asked, listener = self.prompt(env, agent, task, said), perf_counter(), env.listener(agent)
        shorter: Iterator[list[Message]] | None = None
        while True:
            try:
                completions = await self.generate(prompt.ids, n, seed, key, listener if n == 1 else None)
                read, spell = len(prompt.ids), listener is not None
                spoken = [replace(each, text=self.told(each, read, spell)) for each in completions]
                return Answer.of(prompt, *spoken, seconds=perf_counter() - asked)
            except ContextExceededError:
                if shorter is None:
                    if _at_start(env, task):
                        raise
                    shorter = self._shorter(prompt_of(env, agent))
                if (safe := next(shorter, None)) is None:
                    raise
                prompt = Prompt(tuple(self._ids(safe, env.tools(agent))), cut=True)

    def _shorter(self, messages: Sequence[Message]) -> Iterator[list[Message]]:
        """``messages``, each time shorter."""
        while (later := without_oldest(messages)) is not None:
            messages = later
            yield self._safe(messages)
        safe = self._safe(messages)
        limit = _longest(safe)
        while limit := limit // 2:
            yield _limited(safe, limit, self._closed)

    def told(self, completion: Completion, prompt_tokens: int, spell: bool) -> MessageText:
        """The text of ``completion`` as a world is handed it, with its tokens where it is to ``spell`` them."""
        if not spell or self._speller is None:
            return MessageText.of(completion, prompt_tokens)
        return MessageText.of(completion, prompt_tokens, spelled(self._speller, completion, prefill(self.chat)))

    @cached_property
    def _tokens(self) -> TextTokens:
        assert not isinstance(self.tokenizer, ChatCodec)
        return TextTokens(self.tokenizer)

    @property
    def _speller(self) -> Tokenizer | None:
        return None if self.unscored else self._tokens.speller

    @property
    def unscored(self) -> bool:
        """Whether its tokens have no log-probabilities: a server's, which says none."""
        return isinstance(self.tokenizer, ChatCodec)

    def _limit(self, messages: Sequence[Message], tools: ToolOffer | None) -> int:
        """How many characters (of a closed vocabulary: words) of each of ``messages``, but the system's, the context
        has room for."""
        safe = self._safe(messages)
        fits, exceeds = 0, _longest(safe)
        while exceeds - fits > 1:
            limit = (fits + exceeds) // 2
            if self._room(self._ids(_limited(safe, limit, self._closed), tools)) >= 0:
                fits = limit
            else:
                exceeds = limit
        return fits

    @cached_property
    def _longest(self) -> int:
        """The characters of the longest token."""
        return 1 if isinstance(self.tokenizer, ChatCodec) else max(map(len, self.tokenizer.get_vocab()))

    @cached_property
    def _closed(self) -> bool:
        """Whether the vocabulary is one of words, which has no token for :data:`GAP` and none for half a word."""
        if isinstance(self.tokenizer, ChatCodec):
            return False
        unknown = self.tokenizer.unk_token_id
        return unknown is not None and unknown in self.tokenizer.encode(GAP, add_special_tokens=False)

    def _safe(self, messages: Sequence[Message]) -> list[Message]:
        return [{**message, "content": self._without_special(message["content"])} for message in messages]

    def _ids(self, safe: Sequence[Message], tools: ToolOffer | None) -> list[int]:
        if isinstance(self.tokenizer, ChatCodec):
            return self.tokenizer.apply_chat_template(safe, () if tools is None else tools.schemas)
        text = self._text(safe, tools)
        with self._writing():
            return [*self._opening, *self._tokens(text)]

    def _text(self, safe: Sequence[Message], tools: ToolOffer | None) -> str:
        assert not isinstance(self.tokenizer, ChatCodec)
        with self._writing():
            return written(self.tokenizer, safe, None if tools is None else tools.schemas, self.chat)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise :class:`PromptError` for what a template or a tokenizer does not take, such as two messages of one
        role."""
        try:
            yield
        except (ChatTemplateError, TypeError, UnicodeError, RecursionError) as error:
            reason = str(error) or type(error).__name__
            raise PromptError(
                f"the chat template or the tokenizer of policy '{self.policy}' cannot write the messages: {reason}"
            ) from error

    @cached_property
    def _opening(self) -> list[int]:
        """What the tokenizer begins a text with, such as Llama's begin-of-text, in raw prompts; a chat template writes
        it itself."""
        if isinstance(self.tokenizer, ChatCodec) or not is_raw(self.chat):
            return []
        tokens: list[int] = self.tokenizer.encode("")
        return [token for token in tokens if token != self.tokenizer.eos_token_id]

    def _room(self, ids: Sequence[int]) -> int:
        """Tokens that the context has left beside a prompt and its completion; below 0 where they exceed it."""
        return self.context - len(ids) - self.sampling.max_tokens

    def encode(
        self, agent: str, task_id: str, messages: Sequence[Message], tools: ToolOffer | None = None
    ) -> tuple[int, ...]:
        """The prompt's token ids; the chat template shows ``tools``.

        Special tokens come from the chat template alone: the content of a message, whoever wrote it, is plain text, and
        cannot end the message or begin one of another role.

        Raises :class:`PromptError`, naming agent, task and policy, where the context or the vocabulary is exceeded, and
        where the template refuses the messages, knows no tools, or another form of calls.
        """
        if tools is not None:
            self._check_tools(tools, agent)
        safe = self._safe(messages)
        try:
            ids = self._ids(safe, tools)
        except PromptError as error:
            raise PromptError(f"agent '{agent}', task {task_id}: {error}") from error
        if self._room(ids) < 0:
            raise PromptTooLongError(
                f"agent '{agent}', task {task_id}: a prompt of {len(ids)} tokens and up to "
                f"{self.sampling.max_tokens} new ones exceed the "
                f"context of policy '{self.policy}' ({self.context} tokens)"
            )
        self._check_known(ids, safe, f"agent '{agent}', task {task_id}")
        return tuple(ids)

    def _check_tools(self, tools: ToolOffer, agent: str) -> None:
        """Raise :class:`PromptError` where the chat template does not show ``tools`` as the world reads calls."""
        if isinstance(self.tokenizer, ChatCodec):  # has none
            return
        template = template_of(self.tokenizer, self.chat, tools.schemas)
        place = f"agent '{agent}': env.tools={tools.format}"
        if "tools" not in writer(template).names:
            raise PromptError(
                f"{place}: the chat template of policy '{self.policy}' shows no tools; give env.tools=null"
            )
        if MARKS[tools.format] not in template:
            other = [format for format, mark in MARKS.items() if mark in template]
            hint = f"; it is that of env.tools={other[0]}" if other else ""
            raise PromptError(
                f"{place} is not the form that the chat template of policy '{self.policy}' asks for{hint}"
            )

    def _check_known(self, ids: Sequence[int], messages: Sequence[Message], place: str) -> None:
        """Raise :class:`PromptError` where ``ids`` hold the unknown token, naming the first word that it stands for."""
        if isinstance(self.tokenizer, ChatCodec):  # writes everything
            return
        unknown = self.tokenizer.unk_token_id
        if unknown is None or unknown not in ids:
            return
        words = " ".join(message["content"] for message in messages).split()
        strange = (_quoted(w) for w in words if unknown in self.tokenizer.encode(w, add_special_tokens=False))
        raise PromptError(
            f"{place}: policy '{self.policy}' has no token for "
            f"{next(strange, 'a word of its chat template')}: its vocabulary is closed "
            f"({len(self.tokenizer) - len(self._special)} words). Give the world settings whose observations "
            "keep to it, or the policy a base model that reads any text (policies.NAME.base)"
        )

    def _without_special(self, text: str) -> str:
        """``text`` with a blank inside every special token's name, so that none is read as a token; of a server's
        tokenizer, inside those of known chat templates."""
        if isinstance(self.tokenizer, ChatCodec):
            return without_markers(text)
        for name in self._special:
            text = text.replace(name, f"{name[:1]} {name[1:]}")
        return text

    @cached_property
    def _special(self) -> list[str]:
        """The names of special tokens, those without a role of their own too, the longest first."""
        assert not isinstance(self.tokenizer, ChatCodec)
        added = self.tokenizer.added_tokens_decoder.values()
        names = {*self.tokenizer.all_special_tokens, *(token.content for token in added if token.special)}
        return sorted(names, key=len, reverse=True)

    async def generate(
        self,
        prompt_ids: tuple[int, ...],
        n: int,
        seed: int,
        key: tuple[int | str, ...],
        listener: Listener | None = None,
    ) -> list[Completion]:
        """``n`` completions of one prompt; see :class:`..experience.Request`.  Their texts begin with what ends the
        prompt for that (:data:`.chat_template.PREFILL`).  The ``listener`` is told the first, while it is written,
        where nothing of it may be taken back: not with stop strings."""
        begin = prefill(self.chat)
        tell = None
        if listener is not None and not self.sampling.stop and (speller := self._speller) is not None:
            tell = telling(speller, listener, begin)
        completions = await self.engine.generate(
            Request(self.policy, prompt_ids, n, self.sampling, seed, key, None, tell)
        )
        return [replace(each, text=begin + each.text) for each in completions] if begin else completions


def _quoted(word: str) -> str:
    return repr(word) if len(word) <= LONGEST_WORD else f"{word[:LONGEST_WORD]!r}..."


def _at_start(env: TeamEnv, task: Task) -> bool:
    """Whether nothing was said yet in the episode of ``task``."""
    start = env.fork()
    start.reset(task)
    return start.state_key() == env.state_key()


def _longest(messages: Sequence[Message]) -> int:
    """The characters of the longest of ``messages``, but the system's."""
    return max((len(each["content"]) for each in messages if each["role"] != "system"), default=0)


def _limited(messages: Sequence[Message], limit: int, by_word: bool) -> list[Message]:
    """``messages``; of those of more than ``limit`` characters or words, but the system's, the middle is left out."""
    return [
        each if each["role"] == "system" else {**each, "content": _without_middle(each["content"], limit, by_word)}
        for each in messages
    ]


def _without_middle(text: str, limit: int, by_word: bool) -> str:
    parts: Sequence[str] = text.split() if by_word else text
    if len(parts) <= limit:
        return text
    begin, end = parts[: limit - limit // 2], parts[len(parts) - limit // 2 :]
    return " ".join([*begin, *end]) if by_word else f"{''.join(begin)}{GAP}{''.join(end)}"

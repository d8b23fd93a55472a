"""The client of a policy: observation -> prompt tokens -> an engine's completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..experience import Completion, Message, Request, Sampling
from .chat_codec import ChatCodec
from .engines.base import Engine


class PromptError(ValueError):
    """An observation that is no prompt for a policy: too long for its context, or with words outside its vocabulary."""


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

    def encode(self, agent: str, task_id: str, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt's token ids.

        Special tokens come from the chat template alone: the content of a message, whoever wrote it, is plain text, and
        cannot end the message or begin one of another role.

        Raises :class:`PromptError`, naming agent, task and policy, where the context or the vocabulary is exceeded.
        """
        safe = [{**message, "content": self._without_special(message["content"])} for message in messages]
        ids = self.tokenizer.apply_chat_template(safe, add_generation_prompt=True, return_dict=False, **self.chat)
        if len(ids) + self.sampling.max_tokens > self.context:
            raise PromptError(
                f"agent '{agent}', task {task_id}: a prompt of {len(ids)} tokens and up to "
                f"{self.sampling.max_tokens} new ones exceed the "
                f"context of policy '{self.policy}' ({self.context} tokens)"
            )
        self._check_known(ids, safe, f"agent '{agent}', task {task_id}")
        return tuple(ids)

    def _check_known(self, ids: Sequence[int], messages: Sequence[Message], place: str) -> None:
        """Raise :class:`PromptError` where ``ids`` hold the unknown token, naming the first word that it stands for."""
        if isinstance(self.tokenizer, ChatCodec):  # writes everything
            return
        unknown = self.tokenizer.unk_token_id
        if unknown is None or unknown not in ids:
            return
        words = " ".join(message["content"] for message in messages).split()
        strange = (repr(w) for w in words if unknown in self.tokenizer.encode(w, add_special_tokens=False))
        raise PromptError(
            f"{place}: policy '{self.policy}' has no token for "
            f"{next(strange, 'a word of its chat template')}: its vocabulary is closed "
            f"({len(self.tokenizer) - len(self._special)} words). Give the world settings whose observations "
            "keep to it, or the policy a base model that reads any text (policies.NAME.base)"
        )

    def _without_special(self, text: str) -> str:
        """``text`` with a blank inside every special token's name, so that none is read as a token."""
        for name in self._special:
            text = text.replace(name, f"{name[:1]} {name[1:]}")
        return text

    @cached_property
    def _special(self) -> list[str]:
        """The names of special tokens, those without a role of their own too, the longest first."""
        if isinstance(self.tokenizer, ChatCodec):  # knows none
            return []
        added = self.tokenizer.added_tokens_decoder.values()
        names = {*self.tokenizer.all_special_tokens, *(token.content for token in added if token.special)}
        return sorted(names, key=len, reverse=True)

    async def generate(
        self, prompt_ids: tuple[int, ...], n: int, seed: int, key: tuple[int | str, ...]
    ) -> list[Completion]:
        """``n`` completions of one prompt; see :class:`..experience.Request`."""
        return await self.engine.generate(
            Request(policy=self.policy, prompt_ids=prompt_ids, n=n, sampling=self.sampling, seed=seed, key=key)
        )

"""How an agent speaks: observation -> prompt tokens -> an engine's completions."""

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
    """An observation that a policy cannot be asked about: too long for its context, or with words it cannot read."""


@dataclass(frozen=True)
class PolicyClient:
    """A policy behind an engine, with a way of sampling.

    ``context`` is the most tokens, prompt and completion, that the model takes.  ``chat`` is what the tokenizer's chat
    template is given beside the messages.
    """

    policy: str
    engine: Engine
    tokenizer: PreTrainedTokenizerBase | ChatCodec
    context: int
    sampling: Sampling
    chat: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, agent: str, task_id: str, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt's token ids.

        Special tokens come from the chat template alone: what an agent or a program wrote is text, whatever it spells,
        and cannot end a message or begin one of another role.

        Raises :class:`PromptError`, naming agent, task and policy, where the context or the vocabulary is exceeded.
        """
        said = [{**message, "content": self._harmless(message["content"])} for message in messages]
        ids = self.tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False, **self.chat)
        if len(ids) + self.sampling.max_tokens > self.context:
            raise PromptError(
                f"agent '{agent}', task {task_id}: a prompt of {len(ids)} tokens and up to "
                f"{self.sampling.max_tokens} new ones exceed the "
                f"context of policy '{self.policy}' ({self.context} tokens)"
            )
        if isinstance(self.tokenizer, ChatCodec):  # writes everything
            return tuple(ids)
        unknown = self.tokenizer.unk_token_id
        if unknown is not None and unknown in ids:
            words = " ".join(message["content"] for message in said).split()
            strange = (repr(w) for w in words if unknown in self.tokenizer.encode(w, add_special_tokens=False))
            raise PromptError(
                f"agent '{agent}', task {task_id}: policy '{self.policy}' has no token for "
                f"{next(strange, 'a word of its chat template')}: its vocabulary is closed "
                f"({len(self.tokenizer) - len(self._special)} words). Give the world settings whose observations "
                "keep to it, or the policy a base model that reads any text (policies.NAME.base)"
            )
        return tuple(ids)

    def _harmless(self, text: str) -> str:
        """``text`` with every special token's name taken apart by a blank."""
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

    async def speak(
        self, prompt_ids: tuple[int, ...], n: int, seed: int, key: tuple[int | str, ...]
    ) -> list[Completion]:
        """``n`` completions of one prompt."""
        return await self.engine.generate(
            Request(policy=self.policy, prompt_ids=prompt_ids, n=n, sampling=self.sampling, seed=seed, key=key)
        )

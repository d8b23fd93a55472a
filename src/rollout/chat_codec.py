"""Chat messages as token ids, for policies whose tokenizer is unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..experience import Message

TOOLS = "tools"
"""The role of a message that lists the functions of a prompt, of a scripted policy; no server gets it."""


class ChatCodec:
    """Takes the place of a tokenizer where a server reads the messages themselves.

    A prompt's ids are the bytes of its messages' JSON, each in [0, 256): equal prompts have equal ids, different ones
    different ids, and :meth:`messages` restores the messages, to the character.
    """

    vocabulary = 256

    def apply_chat_template(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), **options: Any
    ) -> list[int]:
        """The ids of ``messages``, after a first one of ``tools`` where there are any; the server has the template, so
        a template's ``options`` change nothing."""
        offer = [{"role": TOOLS, "content": json.dumps(list(tools))}] if tools else []
        return list(json.dumps([*offer, *(dict(message) for message in messages)]).encode("ascii"))

    def messages(self, ids: Sequence[int]) -> list[dict[str, str]]:
        """The messages whose ids these are."""
        messages: list[dict[str, str]] = json.loads(bytes(ids))
        return messages

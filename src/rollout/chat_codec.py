"""Chat messages as token ids, for policies whose tokenizer is out of sight."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..experience import Message


class ChatCodec:
    """Stands in a tokenizer's place where a server takes the messages themselves.

    A prompt's ids are the bytes of its messages' JSON, each in [0, 256): equal prompts have equal ids, different ones
    different ids, and :meth:`messages` gives back what was said, to the character.
    """

    vocabulary = 256

    def apply_chat_template(self, messages: Sequence[Message], **options: Any) -> list[int]:
        """The ids of ``messages``; the server has the template, so a template's ``options`` change nothing."""
        return list(json.dumps([dict(message) for message in messages]).encode("ascii"))

    def messages(self, ids: Sequence[int]) -> list[dict[str, str]]:
        """The messages whose ids these are."""
        found: list[dict[str, str]] = json.loads(bytes(ids))
        return found

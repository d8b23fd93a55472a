"""Chat messages as token ids, and the control texts of known chat templates, for policies whose tokenizer is on a
server.
"""

from __future__ import annotations

import json
import re
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


MARKERS = re.compile(
    r"<(?:"
    r"[|\uff5c][^\s<>|\uff5c]{1,64}[|\uff5c]"  # <|im_start|> of ChatML, <|eot_id|> of Llama 3, DeepSeek's wide bars
    r"|/?(?:s|bos|eos|pad|unk|mask|sop|eop)"  # </s> of Llama 2 and Mistral, <eos> of Gemma
    r"|(?:start|end)_of_(?:turn|role|text|image|audio)"  # <start_of_turn> of Gemma
    r"|</?SYS>"  # <<SYS>> of Llama 2
    r"|[a-z]{1,16}:(?:bos|eos|pad|sep)"  # <seed:bos>
    r"|extra_id_\d{1,4}|reserved_\d{1,4}|ctrl\d{1,4}"
    r")>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|THINK|ARGS|CALL_ID|gMASK|sMASK)\]"
    r"|\]~!?b[\[\]]|\[e~\[",  # MiniMax
)
"""Published templates: ChatML (Qwen, Yi, Phi, ...), Llama 2 to 4, Mistral, Gemma, DeepSeek, GLM, Command, gpt-oss,
Granite, Kimi, Seed, MiniMax."""


def without_markers(text: str) -> str:
    """``text`` with a blank inside each of :data:`MARKERS`, so that a server's tokenizer reads it as plain text.

    A server's own template may have others, which nobody can know here.
    """
    return MARKERS.sub(lambda match: f"{match[0][:1]} {match[0][1:]}", text)

"""Between OpenAI's messages and the texts that policies read and write."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import whole_characters
from ...experience import Message, MessageText
from ...gateway.protocol import ChatMessage, ChatReply, ChatRequest, Token, ToolCall
from ..base import Listener
from ..tool_calls import ARGUMENTS, CLOSE, OPEN, Tool, ToolFormat, ToolOffer, calls, split_calls


@dataclass(frozen=True)
class RequestTool(Tool):
    """A function of a request, which the workflow itself runs."""

    raw: Mapping[str, Any]

    @property
    def schema(self) -> dict[str, Any]:
        return dict(self.raw)


def offer(request: ChatRequest, format: ToolFormat | None) -> ToolOffer | None:
    """The functions of ``request``; None where it has none."""
    if not request.tools or format is None:
        return None
    tools = [RequestTool(each["function"]["name"], "", {}, lambda arguments: "", each) for each in request.tools]
    return ToolOffer(format, tuple(tools))


def reply(text: str, request: ChatRequest, format: ToolFormat | None, number: int) -> tuple[ChatReply, bool]:
    """The reply with ``text``, message ``number`` of its episode, and whether it calls functions in a malformed way.

    Where the request offers functions, their calls are taken out of the text; a malformed call stays in it.  A
    :class:`...experience.MessageText` tells whether the message was cut, and its tokens.
    """
    told, text = text if isinstance(text, MessageText) else MessageText(text), whole_characters(text)
    usage = (told.prompt_tokens, told.completion_tokens, told.tokens)
    bodies = calls(format, text) if format is not None and request.tools else None
    read = [_read(body, ARGUMENTS[format], f"call_{number}_{i}") for i, body in enumerate(bodies or ())]  # type: ignore[index]
    called = tuple(call for call in read if call is not None)
    if not called or len(called) < len(read):
        return ChatReply(str(text), (), "length" if told.is_cut else "stop", *usage), bodies is not None
    content = split_calls(text)[1].rstrip() if format == "hermes" else ""
    return ChatReply(content, called, "tool_calls", *usage), False


def listener(write: Callable[[int, Token, str], None], request: ChatRequest, format: ToolFormat | None) -> Listener:
    """Tells ``write`` each token of the message, and what of its text is certain to be in the reply."""
    heard = ""

    def hear(place: int, text: str, logprob: float) -> None:
        nonlocal heard
        heard = heard + text if place else text
        write(place, (text, logprob), _certain(whole_characters(heard), format if request.tools else None))

    return hear


def _certain(text: str, format: ToolFormat | None) -> str:
    """The begin of ``text`` that :func:`reply` leaves as it is, whatever follows, where calls have this ``format``."""
    if format is None:
        return text
    if format == "llama":  # the whole may be a call
        return ""
    before, mark, _ = text.partition(OPEN)
    begun = next((n for n in range(len(OPEN) - 1, 0, -1) if before.endswith(OPEN[:n])), 0) if not mark else 0
    return before[: len(before) - begun].rstrip()


def _read(body: str, key: str, id: str) -> ToolCall | None:
    call = _parsed(body)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not isinstance(call.get(key), dict):
        return None
    if not call["name"].isprintable():
        return None
    return ToolCall(id, call["name"], json.dumps(call[key], ensure_ascii=False))


Identity = tuple[str, tuple[tuple[str, str, str], ...]]


def identity(message: ChatMessage | ChatReply) -> Identity:
    """Equal for a reply and the message that brings it back, in whatever JSON its arguments are then written."""
    calls = ((call.id, call.name, json.dumps(_parsed(call.arguments), sort_keys=True)) for call in message.tool_calls)
    return message.content, tuple(calls)


def prompt(messages: Sequence[ChatMessage], said: Mapping[Identity, str], format: ToolFormat | None) -> list[Message]:
    """``messages`` for a chat template.  One that was replied earlier, ``said``, has the text that the policy wrote."""
    texts = ((each.role, said.get(identity(each)) if each.tool_calls else None, each) for each in messages)
    return [{"role": role, "content": _written(each, format) if text is None else text} for role, text, each in texts]


def unmatched(messages: Sequence[ChatMessage], said: Container[Identity]) -> int:
    """How many of the assistant's ``messages`` are none that was replied earlier: changed since, or never said."""
    return sum(each.role == "assistant" and identity(each) not in said for each in messages)


def _written(message: ChatMessage, format: ToolFormat | None) -> str:
    """The text of ``message``, with its calls in the form of ``format``."""
    texts = [message.content] if message.content else []
    for call in message.tool_calls:
        called = {"name": call.name, ARGUMENTS[format or "hermes"]: _parsed(call.arguments)}
        body = json.dumps(called, ensure_ascii=False)
        texts.append(body if format == "llama" else f"{OPEN}\n{body}\n{CLOSE}")
    return "\n".join(texts)


def _parsed(text: str) -> Any:
    """What the JSON of ``text`` says; ``text`` where nobody can read it."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half of a character cannot be, and no request may hold one
    except (ValueError, RecursionError):  # deeply nested brackets
        return text
    return value

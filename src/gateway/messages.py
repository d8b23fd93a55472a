"""Anthropic's Messages: the same requests and replies as :mod:`.protocol`'s, in their form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .guard import RefusedError, in_anthropics_form
from .protocol import (
    ChatMessage,
    ChatReply,
    ChatRequest,
    Token,
    ToolCall,
    agent_of,
    check_keys,
    check_known,
    flag,
    function_of,
    in_order,
    invalid,
    named_event,
    text_of,
    tools_of,
)

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "stop_sequences": ([],),
    "thinking": ({"type": "disabled"},),
    "tool_choice": ({"type": "auto"}, {"type": "none"}),
}
"""Keys that are understood only with these values, or with null."""
KNOWN = {
    *("model", "messages", "system", "tools", "stream", "max_tokens", "temperature", "top_p", "top_k"),
    *("metadata", "service_tier", *NEUTRAL),
}
BLOCKS = {
    "text": {"type", "text", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
}
"""Keys of each kind of block; ``cache_control`` and ``is_error`` are read and have no effect."""
TOOL = {"type", "name", "description", "input_schema", "cache_control"}
STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def read_message_request(keys: Mapping[str, Any]) -> ChatRequest:
    """The request with the ``keys`` of a body.  Raises :class:`RefusedError` naming the key that is wrong."""
    check_keys(keys, KNOWN, NEUTRAL)
    messages, system = keys.get("messages"), keys.get("system")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "must be a list of at least one message")
    read = [each for i, message in enumerate(messages) for each in _said(f"messages[{i}]", message)]
    if read[-1][1].role == "assistant":
        raise invalid(f"messages[{len(messages) - 1}]", "the last message must be the user's; no reply is begun for it")
    opening = [] if system is None else [ChatMessage("system", text_of("system", system, ("text",)))]
    choice = (keys.get("tool_choice") or {}).get("type")
    tools = tools_of({"tools": keys.get("tools"), "tool_choice": choice}, _tool)
    return ChatRequest(agent_of(keys), (*opening, *in_order(read)), tools, flag("stream", keys.get("stream")))


def _said(place: str, message: Any) -> list[tuple[str, ChatMessage]]:
    """What a message says: its results of functions, each a message of its own, before its text."""
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        raise invalid(place, "must be an object with a role of user, assistant")
    check_known(place, message, {"role", "content"})
    role, content = message["role"], message.get("content")
    if isinstance(content, str):
        return [(place, ChatMessage(role, content))]
    if not isinstance(content, list) or not content:
        raise invalid(f"{place}.content", "must be a text, or a list of at least one block")
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[tuple[str, ChatMessage]] = []
    for at, block in ((f"{place}.content[{i}]", block) for i, block in enumerate(content)):
        match block:
            case {"type": "text", "text": str(text)} if not calls:
                texts.append(text)
            case {"type": "tool_use", "id": str(id), "name": str(name), "input": dict(given)} if role == "assistant":
                calls.append(ToolCall(id, name, json.dumps(given, ensure_ascii=False)))
            case {"type": "tool_result", "tool_use_id": str(id)} if role == "user" and not texts:
                text = text_of(f"{at}.content", block.get("content") or "", ("text",))
                results.append((f"{at}.tool_use_id", ChatMessage("tool", text, answers=id)))
            case _:
                kinds = "text, tool_use" if role == "assistant" else "tool_result, text"
                raise invalid(at, f"must be a whole block of type {kinds}, in this order, in a message of {role}")
        check_known(at, block, BLOCKS[block["type"]])
    if not texts and not calls:
        return results
    return [*results, (place, ChatMessage(role, "".join(texts), tuple(calls)))]


def _tool(place: str, tool: Any) -> Mapping[str, Any]:
    if not isinstance(tool, dict) or tool.get("type", "custom") != "custom" or not isinstance(tool.get("name"), str):
        raise invalid(place, 'must be {"name": ..., "input_schema": ...}; the gateway runs no tools of its own')
    check_known(place, tool, TOOL)
    named = {"name": tool["name"], "description": tool.get("description"), "parameters": tool.get("input_schema")}
    return function_of(place, named)


# ---- replies --------------------------------------------------------------------------------------------------------


def message(reply: ChatReply, request: ChatRequest, id: str, created: int) -> bytes:
    """The body of a reply that is sent whole."""
    return json.dumps(_message(reply, request, id)).encode()


class MessageStream:
    """The events of a reply that is streamed: the text in pieces, each call in one."""

    def __init__(self, request: ChatRequest, id: str, created: int) -> None:
        self._request, self._id, self._opened = request, id, False

    def begin(self) -> Iterator[bytes]:
        begun = _message(ChatReply(""), self._request, self._id) | {"content": [], "stop_reason": None}
        yield named_event({"type": "message_start", "message": begun})

    def text(self, piece: str, tokens: Sequence[Token]) -> Iterator[bytes]:
        if not piece:  # of a reply that is calls alone
            return
        if not self._opened:
            self._opened = True
            yield _block("start", 0, content_block={"type": "text", "text": ""})
        yield _block("delta", 0, delta={"type": "text_delta", "text": piece})

    def end(self, reply: ChatReply) -> Iterator[bytes]:
        whole = _message(reply, self._request, self._id)
        for place, block in enumerate(whole["content"]):
            if block["type"] == "tool_use":
                yield _block("start", place, content_block=block | {"input": {}})
                given = json.dumps(block["input"], ensure_ascii=False)
                yield _block("delta", place, delta={"type": "input_json_delta", "partial_json": given})
            yield _block("stop", place)
        delta = {key: whole[key] for key in ("stop_reason", "stop_sequence")}
        yield named_event({"type": "message_delta", "delta": delta, "usage": whole["usage"]})
        yield named_event({"type": "message_stop"})

    def failed(self, error: RefusedError) -> bytes:
        return named_event(in_anthropics_form(error))


def _block(kind: str, index: int, **keys: Any) -> bytes:
    return named_event({"type": f"content_block_{kind}", "index": index, **keys})


def _message(reply: ChatReply, request: ChatRequest, id: str) -> dict[str, Any]:
    texts = [{"type": "text", "text": reply.content}] if reply.content else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in reply.tool_calls
    ]
    return {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": request.agent,
        "content": [*texts, *calls],
        "stop_reason": STOP_REASONS[reply.finish_reason],
        "stop_sequence": None,
        # Its client adds them up, and so needs numbers, also where they are not known.
        "usage": {"input_tokens": reply.prompt_tokens or 0, "output_tokens": reply.completion_tokens or 0},
    }

"""OpenAI's responses: the same requests and replies as :mod:`.protocol`'s, in their other form.

The gateway keeps no responses: a request has the whole conversation as its ``input``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .guard import RefusedError
from .protocol import (
    ROLES,
    SAMPLING,
    WITHOUT_EFFECT,
    ChatMessage,
    ChatReply,
    ChatRequest,
    Token,
    ToolCall,
    agent_of,
    check_keys,
    flag,
    function_of,
    in_order,
    invalid,
    logprobs_of,
    named_event,
    text_of,
    tools_of,
)

LOGPROBS = "message.output_text.logprobs"
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "include": ([], [LOGPROBS]),
    "max_tool_calls": (),
    "parallel_tool_calls": (True,),
    "prompt": (),
    "reasoning": ({},),
    "text": ({"format": {"type": "text"}}, {}),
    "tool_choice": ("auto", "none"),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Keys that are understood only with these values, or with null."""
KNOWN = {
    *("model", "input", "instructions", "tools", "stream", "previous_response_id", "max_output_tokens"),
    *(*SAMPLING, *WITHOUT_EFFECT, *NEUTRAL),
}
PARTS = ("input_text", "output_text", "text")


def read_response_request(keys: Mapping[str, Any]) -> ChatRequest:
    """The request with the ``keys`` of a body.  Raises :class:`RefusedError` naming the key that is wrong."""
    check_keys(keys, KNOWN, NEUTRAL)
    if keys.get("previous_response_id") is not None:
        raise invalid("previous_response_id", "the gateway keeps no responses; send the whole conversation as input")
    instructions, given = keys.get("instructions"), keys.get("input")
    if not isinstance(instructions, str | None):
        raise invalid("instructions", "must be a text")
    opening = [] if instructions is None else [ChatMessage("system", instructions)]
    messages = [ChatMessage("user", given)] if isinstance(given, str) else _messages(given)
    stream, logprobs = flag("stream", keys.get("stream")), bool(keys.get("include"))
    return ChatRequest(agent_of(keys), (*opening, *messages), tools_of(keys, _tool), stream, logprobs=logprobs)


def _messages(items: Any) -> Sequence[ChatMessage]:
    """What the items of a conversation say.  The calls after an assistant's message are that message's."""
    if not isinstance(items, list) or not items:
        raise invalid("input", "must be a text, or a list of at least one item")
    messages: list[tuple[str, ChatMessage]] = []
    for place, item in ((f"input[{i}]", item) for i, item in enumerate(items)):
        match item:
            case {"type": "function_call", "call_id": str(id), "name": str(name), "arguments": str(arguments)}:
                is_last = bool(messages) and messages[-1][1].role == "assistant"
                last = messages.pop()[1] if is_last else ChatMessage("assistant", "")
                call = ToolCall(id, name, arguments)
                messages.append((place, ChatMessage("assistant", last.content, (*last.tool_calls, call))))
            case {"type": "function_call_output", "output": output}:
                text = text_of(f"{place}.output", output, PARTS)
                messages.append((f"{place}.call_id", ChatMessage("tool", text, answers=str(item.get("call_id", "")))))
            case {"role": str(role)} if item.get("type", "message") == "message" and role in ROLES and role != "tool":
                text = text_of(f"{place}.content", item.get("content"), PARTS)
                messages.append((place, ChatMessage("system" if role == "developer" else role, text)))
            case _:
                raise invalid(place, "must be a message with a role, a function_call or a function_call_output")
    return in_order(messages)


def _tool(place: str, tool: Any) -> Mapping[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("name"), str):
        raise invalid(place, 'must be {"type": "function", "name": ...}')
    return function_of(place, {key: value for key, value in tool.items() if key != "type"})


# ---- replies --------------------------------------------------------------------------------------------------------


def response(reply: ChatReply, request: ChatRequest, id: str, created: int) -> bytes:
    """The body of a reply that is sent whole."""
    return json.dumps(_response(reply, request, id, created)).encode()


class ResponseStream:
    """The events of a reply that is streamed: the text in pieces, each call in one."""

    def __init__(self, request: ChatRequest, id: str, created: int) -> None:
        self._request, self._id, self._created = request, id, created
        self._opened, self._number = False, 0

    def begin(self) -> Iterator[bytes]:
        whole = self._whole(ChatReply(""))
        yield self._event("created", response=whole | {"status": "in_progress", "output": []})

    def text(self, piece: str, tokens: Sequence[Token]) -> Iterator[bytes]:
        if not piece and not self._opened:  # a reply that is calls alone has no message
            return
        if not self._opened:
            yield from self._open()
        logprobs = logprobs_of(tokens) if self._request.logprobs else []
        yield self._event("output_text.delta", **self._at, delta=piece, logprobs=logprobs)

    def end(self, reply: ChatReply) -> Iterator[bytes]:
        whole = self._whole(reply)
        for place, item in enumerate(whole["output"]):
            if item["type"] == "message":
                if not self._opened:
                    yield from self._open()
                (part,) = item["content"]
                yield self._event("output_text.done", **self._at, text=part["text"], logprobs=part["logprobs"])
                yield self._event("content_part.done", **self._at, part=part)
            else:
                kind, at = "function_call_arguments", {"output_index": place, "item_id": item["id"]}
                empty = item | {"status": "in_progress", "arguments": ""}
                yield self._event("output_item.added", output_index=place, item=empty)
                yield self._event(f"{kind}.delta", **at, delta=item["arguments"])
                yield self._event(f"{kind}.done", **at, name=item["name"], arguments=item["arguments"])
            yield self._event("output_item.done", output_index=place, item=item)
        yield self._event(whole["status"], response=whole)

    def failed(self, error: RefusedError) -> bytes:
        told = {key: error.body["error"][key] for key in ("code", "message", "param")}
        return named_event({"type": "error", **told, "sequence_number": self._number})

    def _open(self) -> Iterator[bytes]:
        self._opened = True
        (message,) = self._whole(ChatReply(""))["output"]
        (part,) = message["content"]
        added = message | {"status": "in_progress", "content": []}
        yield self._event("output_item.added", output_index=0, item=added)
        yield self._event("content_part.added", **self._at, part=part)

    @property
    def _at(self) -> dict[str, Any]:
        return {"output_index": 0, "item_id": f"msg_{self._id}", "content_index": 0}

    def _whole(self, reply: ChatReply) -> dict[str, Any]:
        return _response(reply, self._request, self._id, self._created)

    def _event(self, kind: str, **keys: Any) -> bytes:
        self._number += 1
        return named_event({"type": f"response.{kind}", **keys, "sequence_number": self._number - 1})


def _response(reply: ChatReply, request: ChatRequest, id: str, created: int) -> dict[str, Any]:
    cut = reply.finish_reason == "length"
    output = [_call(call, f"fc_{id}_{i}") for i, call in enumerate(reply.tool_calls)]
    if reply.content or not output:
        logprobs = logprobs_of(reply.tokens) if request.logprobs else []
        part = {"type": "output_text", "text": reply.content, "annotations": [], "logprobs": logprobs}
        status = "incomplete" if cut else "completed"
        message = {"type": "message", "id": f"msg_{id}", "status": status, "role": "assistant", "content": [part]}
        output = [message, *output]
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": created,
        "model": request.agent,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [{"type": "function", "strict": False, **tool["function"]} for tool in request.tools],
        "top_p": None,
        "usage": _usage(reply),
    }


def _call(call: ToolCall, id: str) -> dict[str, Any]:
    said = {"name": call.name, "arguments": call.arguments, "status": "completed"}
    return {"type": "function_call", "id": id, "call_id": call.id, **said}


def _usage(reply: ChatReply) -> dict[str, Any] | None:
    if (usage := reply.usage) is None:
        return None
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }

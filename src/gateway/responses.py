"""OpenAI's responses: the same requests and replies as :mod:`.protocol`'s, in their other form.

The gateway keeps no responses: a request has the whole conversation as its ``input``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from .protocol import (
    ROLES,
    SAMPLING,
    WITHOUT_EFFECT,
    ChatMessage,
    ChatReply,
    ChatRequest,
    ToolCall,
    agent_of,
    check_keys,
    flag,
    function_of,
    in_order,
    invalid,
    named_event,
    text_of,
    tools_of,
)

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "include": ([],),
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
    return ChatRequest(agent_of(keys), (*opening, *messages), tools_of(keys, _tool), flag("stream", keys.get("stream")))


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


def response_events(reply: ChatReply, request: ChatRequest, id: str, created: int) -> Iterator[bytes]:
    """The events of a reply that is streamed."""
    number = count()

    def event(kind: str, **keys: Any) -> bytes:
        return named_event({"type": f"response.{kind}", **keys, "sequence_number": next(number)})

    whole = _response(reply, request, id, created)
    yield event("created", response=whole | {"status": "in_progress", "output": []})
    for place, item in enumerate(whole["output"]):
        at = {"output_index": place, "item_id": item["id"]}
        if item["type"] == "message":
            (part,), at = item["content"], at | {"content_index": 0}
            empty = item | {"status": "in_progress", "content": []}
            yield event("output_item.added", output_index=place, item=empty)
            yield event("content_part.added", **at, part=part | {"text": ""})
            yield event("output_text.delta", **at, delta=part["text"], logprobs=[])
            yield event("output_text.done", **at, text=part["text"], logprobs=[])
            yield event("content_part.done", **at, part=part)
        else:
            empty = item | {"status": "in_progress", "arguments": ""}
            yield event("output_item.added", output_index=place, item=empty)
            yield event("function_call_arguments.delta", **at, delta=item["arguments"])
            yield event("function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])
        yield event("output_item.done", output_index=place, item=item)
    yield event(whole["status"], response=whole)


def _response(reply: ChatReply, request: ChatRequest, id: str, created: int) -> dict[str, Any]:
    cut = reply.finish_reason == "length"
    output = [_call(call, f"fc_{id}_{i}") for i, call in enumerate(reply.tool_calls)]
    if reply.content or not output:
        part = {"type": "output_text", "text": reply.content, "annotations": [], "logprobs": []}
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

"""Anthropic's Messages, read strictly; replies whole and streamed."""

import json
from typing import Any

import pytest

from troupe.gateway.guard import RefusedError
from troupe.gateway.messages import MessageStream, message, read_message_request
from troupe.gateway.protocol import ChatMessage, ChatReply, ChatRequest, ToolCall, read_request

USER = {"role": "user", "content": "hello"}
USE = {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}
CALLED = {"role": "assistant", "content": [USE]}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "3"}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}


def of(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def read(**keys: Any) -> ChatRequest:
    return read_message_request({"model": "ann", "max_tokens": 9, "messages": [USER]} | keys)


def test_a_request() -> None:
    said = {"role": "assistant", "content": [{"type": "text", "text": "I see."}, USE, USE | {"id": "2"}]}
    parts = [{"type": "text", "text": "3"}]
    results = [RESULT | {"tool_use_id": "2", "content": parts, "is_error": True}, RESULT, {"type": "text", "text": "?"}]
    request = read(
        system=[{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
        messages=[USER, said, {"role": "user", "content": results}],
        tools=[TOOL],
        temperature=0.3,
        metadata={"user_id": "me"},
    )
    calls = (ToolCall("1", "f", '{"x": 1}'), ToolCall("2", "f", '{"x": 1}'))
    assert request.messages == (
        ChatMessage("system", "a"),
        ChatMessage("user", "hello"),
        ChatMessage("assistant", "I see.", calls),
        ChatMessage("tool", "3", answers="1"),  # in the order of the calls
        ChatMessage("tool", "3", answers="2"),
        ChatMessage("user", "?"),
    )
    function = {"name": "f", "description": "d", "parameters": TOOL["input_schema"]}
    same = read_request({"model": "ann", "messages": [USER], "tools": [{"type": "function", "function": function}]})
    assert read(tools=[TOOL]).key == same.key  # one record, whatever the form
    assert read(tools=[TOOL], tool_choice={"type": "none"}).tools == () and read(stream=True).stream


DEEP: Any = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("keys", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ["ann"]}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"messages": [USER, None]}, "messages[1]"),
        ({"messages": [{"role": "system", "content": "a"}]}, "messages[0]"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": ["text"], "text": "a"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [USE]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "content": [RESULT]}, USER]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "content": [USE | {"input": "{}"}]}, USER]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "content": [USE | {"id": 1}]}, USER]}, "messages[0].content[0]"),
        ({"messages": [USER, of("assistant", {"type": "thinking", "thinking": "x"}), USER]}, "messages[1].content[0]"),
        ({"messages": [USER, {"role": "assistant", "content": "begin"}]}, "messages[1]"),
        ({"messages": [{"role": "user", "content": [RESULT]}]}, "messages[0].content[0].tool_use_id"),
        ({"messages": [CALLED, of("user", RESULT | {"tool_use_id": "2"})]}, "messages[1].content[0].tool_use_id"),
        ({"messages": [CALLED, of("user", RESULT | {"content": [{}]})]}, "messages[1].content[0].content"),
        (
            {"messages": [of("user", {"type": "text", "text": "", "citations": [1]})]},
            "messages[0].content[0].citations",
        ),
        ({"messages": [USER | {"name": "me"}]}, "messages[0].name"),
        ({"messages": [{"role": "user", "content": "half of \ud83d"}]}, "messages"),
        ({"messages": DEEP}, "messages"),
        ({"system": 3}, "system"),
        ({"system": [{"type": "image"}]}, "system"),
        ({"tools": "f"}, "tools"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]"),
        ({"tools": [{"name": 3}]}, "tools[0]"),
        ({"tools": [TOOL | {"input_schema": "x"}]}, "tools[0]"),
        ({"tools": [TOOL | {"strict": True}]}, "tools[0].strict"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "tool_choice"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"stop_sequences": ["x"]}, "stop_sequences"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"stream": "true"}, "stream"),
        ({"logprobs": True}, "logprobs"),  # of which this form knows nothing
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"n": 2}, "n"),
    ],
)
def test_what_the_gateway_does_not_follow_is_refused(keys: dict[str, Any], param: str) -> None:
    with pytest.raises(RefusedError) as error:
        read(**keys)
    assert error.value.body["error"]["param"] == param and error.value.code == "invalid_value"


def test_replies() -> None:
    reply = ChatReply("I call.", (ToolCall("call_0_0", "f", '{"x": 1}'),), "tool_calls", 3, 4)
    whole = json.loads(message(reply, read(tools=[TOOL]), "0", 1))
    use = {"type": "tool_use", "id": "call_0_0", "name": "f", "input": {"x": 1}}
    assert whole["content"] == [{"type": "text", "text": "I call."}, use]
    assert whole["stop_reason"] == "tool_use" and whole["usage"] == {"input_tokens": 3, "output_tokens": 4}
    ends = {"stop": "end_turn", "length": "max_tokens"}
    for finish, reason in ends.items():
        assert json.loads(message(ChatReply("I", (), finish), read(), "0", 1))["stop_reason"] == reason  # type: ignore[arg-type]
    stream = MessageStream(read(tools=[TOOL]), "0", 1)
    sent = [*stream.begin(), *stream.text("I ", []), *stream.text("call.", []), *stream.end(reply)]
    events = [json.loads(event.split(b"data: ")[1]) for event in sent]
    assert [(event["type"], event.get("index")) for event in events] == [
        ("message_start", None),
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert json.loads(events[6]["delta"]["partial_json"]) == {"x": 1}
    assert events[8]["delta"]["stop_reason"] == "tool_use" and events[8]["usage"]["output_tokens"] == 4


def test_a_streamed_reply_of_calls_alone_has_no_text() -> None:
    reply = ChatReply("", (ToolCall("call_0_0", "f", '{"x": 1}'),), "tool_calls", 3, 4, (("<tool_call>", -0.5),))
    stream = MessageStream(read(tools=[TOOL]), "0", 1)
    sent = [*stream.begin(), *stream.text("", reply.tokens), *stream.end(reply)]
    events = [json.loads(event.split(b"data: ")[1]) for event in sent]
    blocks = [(event["type"], event["index"]) for event in events if "index" in event]
    assert blocks == [("content_block_start", 0), ("content_block_delta", 0), ("content_block_stop", 0)]
    assert [event["content_block"]["type"] for event in events if "content_block" in event] == ["tool_use"]

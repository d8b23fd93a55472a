"""OpenAI's requests, read strictly; replies whole and streamed."""

import json
from dataclasses import replace
from typing import Any

import pytest

from troupe.gateway.guard import RefusedError
from troupe.gateway.protocol import (
    ChatMessage,
    ChatReply,
    ChatRequest,
    ChatStream,
    ToolCall,
    completion,
    read_request,
)

USER = {"role": "user", "content": "hello"}
FUNCTION = {"name": "f", "arguments": "{}"}
TOOL = {"type": "function", "function": {"name": "f"}}

HOSTILE_FLAGS: list[Any] = ["true", "false", "", 1, 2, -1, 0.5, 1e300, ["x"], [True], {"on": True}, "\ud83d"]
"""What is neither true nor false."""


def read(**keys: Any) -> ChatRequest:
    return read_request({"model": "ann", "messages": [USER]} | keys)


def test_a_request() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": FUNCTION}]}
    messages = [
        {"role": "developer", "content": parts},
        USER,
        call,
        {"role": "tool", "content": "3", "tool_call_id": "1"},
    ]
    request = read(messages=messages, tools=[TOOL], temperature=0.3, max_tokens=7, stop=None, n=1, user="me")
    assert request.messages == (
        ChatMessage("system", "ab"),
        ChatMessage("user", "hello"),
        ChatMessage("assistant", "", (ToolCall("1", "f", "{}"),)),
        ChatMessage("tool", "3", answers="1"),
    )
    assert [tool["function"]["name"] for tool in request.tools] == ["f"] and not request.stream
    assert read(stream=True).stream and not read(stream=None).stream
    assert (
        read(tools=[{"type": "function", "function": {"name": "f", "strict": False}}]).tools == read(tools=[TOOL]).tools
    )
    empty = {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "annotations": [],
        "function_call": None,
        "name": "n",
    }
    assert read(messages=[empty]).messages == (ChatMessage("assistant", "x"),)
    assert read(tools=[TOOL], tool_choice="none").tools == ()
    assert read().key == read(temperature=1).key != read(tools=[TOOL]).key
    assert read().key not in (read(logprobs=True).key, replace(read(), session="a").key)


@pytest.mark.parametrize(
    ("keys", "param"),
    [
        ({"model": 3}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [USER, {"role": "nobody", "content": ""}]}, r"messages[1]"),
        ({"messages": [{"role": "user", "content": None}]}, r"messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, r"messages[0].content"),
        ({"messages": [{**USER, "tool_calls": [{"function": FUNCTION}]}]}, r"messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}, r"messages[0].tool_calls[0]"),
        ({"tools": "f"}, "tools"),
        ({"tools": [{"type": "web_search"}]}, r"tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]}, r"tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}, r"tools[0].function.strict"),
        ({"tools": [{"type": "function", "function": {"name": "f", "grammar": "x"}}]}, r"tools[0].function.grammar"),
        ({"tools": [TOOL | {"custom": {"x": 1}}]}, r"tools[0].custom"),
        ({"tools": [TOOL], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"stream": "false"}, "stream"),
        ({"stream_options": "all"}, "stream_options"),
        ({"stream_options": {"include_usage": "false"}}, "stream_options.include_usage"),
        ({"messages": [{"role": "assistant", "content": "", "function_call": FUNCTION}]}, r"messages[0].function_call"),
        ({"messages": [USER, {"role": "tool", "content": "3"}]}, r"messages[1].tool_call_id"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"n": 2}, "n"),
        *(({"logprobs": value}, "logprobs") for value in HOSTILE_FLAGS),
        *(({"top_logprobs": value}, "top_logprobs") for value in (1, 20, -1, "0", [0], 0.5, {"k": 1})),
        *(({"stream": value}, "stream") for value in HOSTILE_FLAGS),
        *(({"stream_options": value}, "stream_options") for value in (1, "include_usage", ["include_usage"])),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_json": {}}, "guided_json"),
        ({"messages": [{"role": "user", "content": "half of \ud83d"}]}, "messages"),
        ({"tools": [{"type": "function", "function": {"name": "f", "description": "\ud83d"}}]}, "tools"),
        ({"\ud83d": 1}, "\\ud83d"),
    ],
)
def test_what_the_gateway_does_not_follow_is_refused(keys: dict[str, Any], param: str) -> None:
    with pytest.raises(RefusedError) as error:
        read(**keys)
    assert error.value.body["error"]["param"] == param and error.value.code == "invalid_value"


def test_results_are_in_the_order_of_their_calls() -> None:
    """A prompt has no ids: the order alone says which result is whose."""
    calls = [{"id": id, "type": "function", "function": FUNCTION} for id in "ab"]
    asked = [USER, {"role": "assistant", "content": None, "tool_calls": calls}]
    results = [{"role": "tool", "content": f"of {id}", "tool_call_id": id} for id in "ab"]
    one, other = (read(messages=[*asked, *each, USER]) for each in (results, results[::-1]))
    assert [each.content for each in one.messages] == ["hello", "", "of a", "of b", "hello"]
    assert other.messages == one.messages and other.key == one.key
    with pytest.raises(RefusedError, match=r"messages\[3\]\.tool_call_id: .* has no call \"c\""):
        read(messages=[*asked, results[0], results[1] | {"tool_call_id": "c"}])


def test_replies() -> None:
    call = ToolCall("call_0_0", "f", "{}")
    reply = ChatReply("", (call,), "tool_calls", 3, 4)
    whole = json.loads(completion(reply, read(tools=[TOOL]), "id", 1))
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": None, "tool_calls": [call.body]}
    request = read(stream=True, stream_options={"include_usage": True}, logprobs=True)
    stream = ChatStream(request, "id", 1)
    events = [*stream.begin(), *stream.text("I", [("I", -0.5)]), *stream.end(reply)]
    assert events[-1] == b"data: [DONE]\n\n"
    first, text, calls, end, usage = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert text["choices"][0]["delta"] == {"content": "I"}
    said = {"token": "I", "bytes": [73], "logprob": -0.5, "top_logprobs": []}
    assert text["choices"][0]["logprobs"] == {"content": [said]}
    assert calls["choices"][0]["delta"]["tool_calls"] == [{"index": 0, **call.body}]
    assert end["choices"][0]["finish_reason"] == "tool_calls" and usage["usage"]["total_tokens"] == 7
    assert b"logprobs" not in b"".join(ChatStream(read(), "id", 1).text("I", [("I", -0.5)]))
    whole = json.loads(completion(ChatReply("I", tokens=(("I", -0.5), ("", -1.0))), read(logprobs=True), "id", 1))
    assert [each["logprob"] for each in whole["choices"][0]["logprobs"]["content"]] == [-0.5, -1.0]
    assert "usage" not in json.loads(completion(ChatReply("hi"), read(), "id", 1))

"""OpenAI's responses, read strictly; replies whole and streamed."""

import json
from typing import Any

import pytest

from troupe.gateway.guard import RefusedError
from troupe.gateway.protocol import ChatMessage, ChatReply, ChatRequest, ToolCall
from troupe.gateway.responses import LOGPROBS, ResponseStream, read_response_request, response

USER = {"role": "user", "content": [{"type": "input_text", "text": "hel"}, {"type": "input_text", "text": "lo"}]}
CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
TOOL = {"type": "function", "name": "f", "strict": False}


def read(**keys: Any) -> ChatRequest:
    return read_response_request({"model": "ann", "input": "hello"} | keys)


def test_a_request() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I see."}]}
    other = {"type": "function_call_output", "call_id": "1", "output": "3"}
    request = read(
        input=[{"role": "developer", "content": "b"}, USER, said, CALL, CALL | {"call_id": "2"}, other, CALL],
        instructions="a",
        tools=[TOOL],
        temperature=0.3,
        max_output_tokens=7,
        store=False,
    )
    calls = (ToolCall("1", "f", "{}"), ToolCall("2", "f", "{}"))
    assert request.messages == (
        ChatMessage("system", "a"),
        ChatMessage("system", "b"),
        ChatMessage("user", "hello"),
        ChatMessage("assistant", "I see.", calls),
        ChatMessage("tool", "3", answers="1"),
        ChatMessage("assistant", "", calls[:1]),
    )
    assert [tool["function"]["name"] for tool in request.tools] == ["f"] and not request.stream
    assert read().messages == (ChatMessage("user", "hello"),) and read(tools=[TOOL], tool_choice="none").tools == ()


@pytest.mark.parametrize(
    ("keys", "param"),
    [
        ({"model": 3}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ["hello"]}, "input[0]"),
        ({"input": [{"role": "tool", "content": "3"}]}, "input[0]"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input[0]"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"input": [{"type": "function_call_output", "output": None}]}, "input[0].output"),
        ({"instructions": 3}, "instructions"),
        ({"tools": "f"}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [TOOL | {"strict": True}]}, "tools[0].strict"),
        ({"tools": [TOOL], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"stream": "false"}, "stream"),
        ({"input": [CALL, {"type": "function_call_output", "call_id": "2", "output": "3"}]}, "input[1].call_id"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"text": {"format": {"type": "json_object"}}}, "text"),
        ({"messages": []}, "messages"),
        *(({"include": value}, "include") for value in ("x", [""], [LOGPROBS, LOGPROBS], {LOGPROBS: 1}, 1, True)),
        *(({"top_logprobs": value}, "top_logprobs") for value in (1, -1, "0", [0])),
        ({"input": "half of \ud83d"}, "input"),
    ],
)
def test_what_the_gateway_does_not_follow_is_refused(keys: dict[str, Any], param: str) -> None:
    with pytest.raises(RefusedError) as error:
        read(**keys)
    assert error.value.body["error"]["param"] == param and error.value.code == "invalid_value"


def test_results_are_in_the_order_of_their_calls() -> None:
    results = [{"type": "function_call_output", "call_id": id, "output": f"of {id}"} for id in "12"]
    request = read(input=[CALL, CALL | {"call_id": "2"}, *results[::-1]])
    assert [each.content for each in request.messages[1:]] == ["of 1", "of 2"]


def test_replies() -> None:
    reply = ChatReply("I call.", (ToolCall("call_0_0", "f", "{}"),), "tool_calls", 3, 4)
    whole = json.loads(response(reply, read(tools=[TOOL]), "0", 1))
    assert whole["status"] == "completed" and whole["model"] == "ann" and whole["usage"]["total_tokens"] == 7
    message, call = whole["output"]
    assert message["content"][0]["text"] == "I call." and (call["call_id"], call["arguments"]) == ("call_0_0", "{}")
    stream = ResponseStream(read(tools=[TOOL]), "0", 1)
    sent = [*stream.begin(), *stream.text("I ", []), *stream.text("call.", []), *stream.end(reply)]
    pairs = [event.decode().split("\n")[:2] for event in sent]
    events = [json.loads(data.removeprefix("data: ")) for _, data in pairs]
    assert [f"event: {event['type']}" for event in events] == [name for name, _ in pairs]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == [message, call]
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == "I call."
    assert events[-1] == {"type": "response.completed", "response": whole, "sequence_number": len(events) - 1}
    silent = ResponseStream(read(), "0", 1)
    assert len([*silent.begin(), *silent.end(ChatReply(""))]) == 7  # an empty message has its events, too
    told = json.loads(response(ChatReply("I", tokens=(("I", -0.5),)), read(include=[LOGPROBS]), "0", 1))
    assert told["output"][0]["content"][0]["logprobs"][0]["logprob"] == -0.5
    cut = json.loads(response(ChatReply("I", (), "length"), read(), "0", 1))
    assert cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"}
    assert cut["usage"] is None and cut["output"][0]["status"] == "incomplete"


def test_a_streamed_reply_of_calls_alone_has_no_message() -> None:
    reply = ChatReply("", (ToolCall("call_0_0", "f", "{}"),), "tool_calls", 3, 4, (("<tool_call>", -0.5),))
    stream = ResponseStream(read(), "0", 1)
    sent = [*stream.begin(), *stream.text("", reply.tokens), *stream.end(reply)]
    events = [json.loads(event.split(b"data: ")[1]) for event in sent]
    added = [event["item"]["type"] for event in events if event["type"] == "response.output_item.added"]
    assert added == [item["type"] for item in events[-1]["response"]["output"]] == ["function_call"]

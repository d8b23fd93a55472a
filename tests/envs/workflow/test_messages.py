"""What a framework makes of a reply before it sends it back."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.envs.tool_calls import CLOSE, OPEN, ToolFormat
from troupe.envs.workflow.messages import identity, listener, prompt, reply, unmatched
from troupe.gateway.protocol import ChatMessage, ChatReply, ChatRequest, ToolCall, read_request

USER = {"role": "user", "content": "?"}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
SAID = 'I look.\n<tool_call>\n{"name":"find",  "arguments": {"where": "Zürich", "n": 2}}\n</tool_call>'


def request(*messages: Mapping[str, Any]) -> ChatRequest:
    return read_request({"model": "ann", "messages": [USER, *messages], "tools": [TOOL]})


def replied(text: str) -> ChatReply:
    answer, is_malformed = reply(text, request(), "hermes", 0)
    assert answer.tool_calls and not is_malformed
    return answer


@pytest.mark.parametrize(
    "written", [{}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"sort_keys": True}, {"indent": 1}], ids=str
)
def test_a_call_that_is_written_anew_has_the_text_that_was_sampled(written: dict[str, Any]) -> None:
    answer = replied(SAID)
    message = answer.message
    function = message["tool_calls"][0]["function"]
    function["arguments"] = json.dumps(json.loads(function["arguments"]), **written)
    again = request(message, {"role": "tool", "content": "3", "tool_call_id": "call_0_0"}).messages
    said = {identity(answer): SAID}
    assert [each["content"] for each in prompt(again, said, "hermes")] == ["?", SAID, "3"]
    assert unmatched(again, said) == 0


def test_arguments_are_written_as_they_are_read() -> None:
    (call,) = replied(SAID).tool_calls
    assert call.arguments == '{"where": "Zürich", "n": 2}'
    (message,) = prompt([ChatMessage("assistant", "", (call,))], {}, "hermes")
    assert "Zürich" in message["content"]


def test_half_of_a_character_is_no_argument() -> None:
    text = '<tool_call>{"name": "find", "arguments": {"where": "\\ud83d"}}</tool_call>'
    assert reply(text, request(), "hermes", 0) == (ChatReply(text), True)
    call = ToolCall("1", "find", '{"where": "\\ud83d"}')  # of the program's own
    (message,) = prompt([ChatMessage("assistant", "", (call,))], {}, "hermes")
    assert message["content"].encode()


def test_messages_that_nobody_said_are_counted() -> None:
    answer, plain = replied(SAID), ChatReply("think the answer")
    said = {identity(answer): SAID, identity(plain): plain.content}
    (call,) = answer.tool_calls
    own = ChatMessage("assistant", answer.content, answer.tool_calls), ChatMessage("assistant", plain.content)
    others = (
        ChatMessage("assistant", "the answer"),
        replace(own[0], content="I look"),
        replace(own[0], tool_calls=(replace(call, arguments='{"where": "Bern", "n": 2}'),)),
        replace(own[0], tool_calls=(replace(call, name="seek"),)),
        replace(own[0], tool_calls=()),
    )
    assert unmatched(own, said) == 0
    for other in others:
        assert unmatched([ChatMessage("user", "the answer"), *own, other], said) == 1


@pytest.mark.parametrize(("offers", "format"), [(True, "hermes"), (True, "llama"), (False, "hermes")])
@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from([" ", "\n", "a", "<", "<tool", "_call>", OPEN, CLOSE, SAID[8:], "<think>", "</think>", "{"])
    )
)
def test_what_is_streamed_is_the_begin_of_the_reply(offers: bool, format: ToolFormat, pieces: list[str]) -> None:
    """Whatever follows: of a call that is one, of one that is malformed, and of text that only looks like a call."""
    told: list[tuple[int, str]] = []
    asked = request() if offers else replace(request(), tools=())
    hear = listener(lambda place, token, text: told.append((place, text)), asked, format)
    for place, piece in enumerate(pieces):
        hear(place, piece, -0.5)
    whole, _ = reply("".join(pieces), asked, format, 0)
    assert [place for place, _ in told] == list(range(len(pieces)))
    assert all(whole.content.startswith(text) for _, text in told)
    assert offers or not told or told[-1][1] == whole.content

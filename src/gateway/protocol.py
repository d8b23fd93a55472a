"""OpenAI's chat completions: requests read strictly, replies written whole or as a stream.  :mod:`.responses` and
:mod:`.messages` have other forms of the same.

A key that would change what a reply is, and that the gateway does not follow, is refused and never ignored; the keys of
sampling are the policy's own settings, so that what is learnt from is what was sampled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

from .guard import RefusedError

SAMPLING = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed")
"""Keys whose values are the policy's own: they are read and have no effect."""
WITHOUT_EFFECT = ("user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier")
"""Keys that change nothing of a reply."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "stop": ([], ""),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "tool_choice": ("auto", "none"),
}
"""Keys that are understood only with these values, or with null."""
MESSAGE = {"role", "content", "tool_calls", "tool_call_id", "name"}
"""Keys of a message; its ``name`` is read and has no effect."""
FUNCTION = {"name", "description", "parameters", "strict"}
KNOWN = {"model", "messages", "tools", "stream", "stream_options", "logprobs", *SAMPLING, *WITHOUT_EFFECT, *NEUTRAL}
ROLES = ("system", "developer", "user", "assistant", "tool")

FinishReason = Literal["stop", "length", "tool_calls"]
Token = tuple[str, float]
"""The text of a token, and its log-probability as it is recorded."""


def invalid(param: str, message: str) -> RefusedError:
    """The refusal of a request whose key ``param`` is wrong."""
    return RefusedError(HTTPStatus.BAD_REQUEST, f"{param}: {message}", "invalid_value", param)


@dataclass(frozen=True)
class ToolCall:
    """A call of a function in a message; ``arguments`` is JSON."""

    id: str
    name: str
    arguments: str

    @property
    def body(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class ChatMessage:
    """One message of a request; ``tool_calls`` only of the assistant, ``answers`` the id of the call whose result a
    message of a tool is.
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    answers: str = ""


@dataclass(frozen=True)
class ChatRequest:
    """A call of ``agent``; ``tools`` are JSON schemas in OpenAI's form."""

    agent: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    stream: bool = False
    usage: bool = True
    """Whether a stream ends with the numbers of tokens."""
    logprobs: bool = False
    """Whether the reply has its tokens with their log-probabilities."""
    session: str = ""
    """Of the sub-agent that asks, as a path: ``a/b`` is a child of ``a``."""

    @property
    def key(self) -> str:
        """Equal for two requests to which the same may be answered."""
        said = [[each.role, each.content, [call.body for call in each.tool_calls]] for each in self.messages]
        return json.dumps([self.agent, said, list(self.tools), self.session, self.logprobs], sort_keys=True)


@dataclass(frozen=True)
class ChatReply:
    """What an agent answers."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = "stop"
    prompt_tokens: int | None = None
    """None: not known where the reply is made."""
    completion_tokens: int | None = None
    tokens: tuple[Token, ...] = ()
    """All that were sampled, those of calls and of the end included; () where nobody asked for them."""

    @property
    def usage(self) -> dict[str, int] | None:
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.content or None if self.tool_calls else self.content,
        }
        return message | ({"tool_calls": [call.body for call in self.tool_calls]} if self.tool_calls else {})


class Draft:
    """What is written of a reply so far: ``tokens``, and the ``text`` that will be in the reply whatever follows.  For
    the server's event loop alone.
    """

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.text = ""
        self.changed = asyncio.Event()

    def write(self, position: int, token: Token, text: str) -> None:
        """Token ``position`` was drawn, after which ``text`` is certain; decoding may begin anew at position 0."""
        self.tokens[position:] = [token]
        self.text = text
        self.changed.set()

    def take(self, other: Draft) -> None:
        """Go on where ``other`` is."""
        self.tokens, self.text = other.tokens, other.text
        self.changed.set()


def read_request(keys: Mapping[str, Any]) -> ChatRequest:
    """The request with the ``keys`` of a body.  Raises :class:`RefusedError` naming the key that is wrong."""
    check_keys(keys, KNOWN, NEUTRAL)
    messages = keys.get("messages")
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "must be a list of at least one message")
    options = keys.get("stream_options") or {}
    if not isinstance(options, dict):
        raise invalid("stream_options", "must be an object")
    usage = flag("stream_options.include_usage", options.get("include_usage"))
    read = [(f"messages[{i}].tool_call_id", _message(f"messages[{i}]", each)) for i, each in enumerate(messages)]
    told = [flag(name, keys.get(name)) for name in ("stream", "logprobs")]
    return ChatRequest(agent_of(keys), in_order(read), tools_of(keys, _tool), told[0], usage, told[1])


def check_keys(keys: Mapping[str, Any], known: Collection[str], neutral: Mapping[str, Sequence[Any]]) -> None:
    """Raise :class:`RefusedError` for a key that is not ``known``, and for another value than null and those of
    ``neutral``.
    """
    for name, value in keys.items():
        _check_text(name, value)
    for name in keys:
        if name not in known:
            raise invalid(name, "the gateway does not follow this key; leave it out")
    for name, values in neutral.items():
        if (value := keys.get(name)) is not None and value not in values:
            accepted = ", ".join(json.dumps(each) for each in values) or "null"
            raise invalid(name, f"the gateway understands only {accepted} here, got {json.dumps(value)}")


def check_scored(request: ChatRequest, unscored: Collection[str]) -> None:
    """Raise :class:`RefusedError` where log-probabilities of one of the agents ``unscored`` are asked for."""
    if request.logprobs and request.agent in unscored:
        raise invalid("logprobs", f"agent '{request.agent}' has none: its policy is remote or scripted")


def agent_of(keys: Mapping[str, Any]) -> str:
    """The agent that is asked.  Raises :class:`RefusedError`."""
    agent = keys.get("model")
    if not isinstance(agent, str):
        raise invalid("model", "must be the name of an agent")
    return agent


def flag(place: str, value: Any) -> bool:
    """``value``, of which null is false.  Raises :class:`RefusedError` for what is neither true nor false."""
    if not isinstance(value, bool | None):
        raise invalid(place, f"must be true or false, got {json.dumps(value)}")
    return bool(value)


def tools_of(keys: Mapping[str, Any], read: Callable[[str, Any], Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The functions that are offered, each by ``read(place, tool)``.  Raises :class:`RefusedError`."""
    tools = keys.get("tools") or []
    if not isinstance(tools, list):
        raise invalid("tools", "must be a list")
    found = tuple(read(f"tools[{i}]", tool) for i, tool in enumerate(tools))
    return () if keys.get("tool_choice") == "none" else found


def in_order(read: Sequence[tuple[str, ChatMessage]]) -> tuple[ChatMessage, ...]:
    """The messages of ``read``, the results of functions in the order of their calls, since a prompt shows no ids.

    Each has the name of the key with the id of a result's call.  Raises :class:`RefusedError` for a result of no call
    of the assistant's message before it.
    """
    calls: dict[str, int] = {}
    begin, order = 0, []
    for number, (place, message) in enumerate(read):
        if message.role == "assistant":
            calls = {call.id: i for i, call in enumerate(message.tool_calls)}
        if message.role != "tool":
            begin = number
            order.append((begin, -1))
        elif message.answers in calls:
            order.append((begin, calls[message.answers]))
        else:
            raise invalid(place, f"the assistant's message before it has no call {json.dumps(message.answers)}")
    return tuple(read[number][1] for number in sorted(range(len(read)), key=order.__getitem__))


def _check_text(name: str, value: Any) -> None:
    """Raise :class:`RefusedError` where no tokenizer could read the texts of ``value``, or nobody its brackets."""
    try:
        json.dumps([name, value], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        shown = name.encode(errors="backslashreplace").decode()
        raise invalid(shown, "holds half of a character, a lone surrogate: it is no text of Unicode") from error
    except RecursionError as error:
        raise invalid(name, "is nested too deeply") from error


def _tool(place: str, tool: Any) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid(place, 'must be {"type": "function", "function": {"name": ...}}')
    check_known(place, tool, {"type", "function"})
    return function_of(f"{place}.function", function)


def function_of(place: str, function: Mapping[str, Any]) -> Mapping[str, Any]:
    """A function that is offered, as chat templates take it.  Raises :class:`RefusedError`."""
    check_known(place, function, FUNCTION)
    if function.get("strict") not in (None, False):
        message = "the gateway holds no call to its schema; give false, and let the program check the arguments"
        raise invalid(f"{place}.strict", message)
    schema = {"name": function["name"], "description": function.get("description") or ""}
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, dict) or not isinstance(schema["description"], str):
        raise invalid(place, "description must be a text, and parameters a JSON schema")
    return {"type": "function", "function": schema | {"parameters": parameters}}


def check_known(place: str, keys: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise :class:`RefusedError` for another key of the object at ``place``, unless it holds nothing."""
    for name, value in keys.items():
        if name not in known and value not in (None, [], {}, ""):
            raise invalid(f"{place}.{name}", "the gateway does not follow this key; leave it out")


def _message(place: str, message: Any) -> ChatMessage:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise invalid(place, f"must be an object with a role of {', '.join(ROLES)}")
    check_known(place, message, MESSAGE)
    role = "system" if message["role"] == "developer" else message["role"]
    calls = message.get("tool_calls") or []
    if calls and role != "assistant":
        raise invalid(f"{place}.tool_calls", "only the assistant calls tools")
    if not isinstance(calls, list):
        raise invalid(f"{place}.tool_calls", "must be a list")
    called = tuple(_call(f"{place}.tool_calls[{i}]", call) for i, call in enumerate(calls))
    if called and message.get("content") is None:
        return ChatMessage(role, "", called)
    answers = str(message.get("tool_call_id") or "") if role == "tool" else ""
    return ChatMessage(role, text_of(f"{place}.content", message.get("content"), ("text",)), called, answers)


def text_of(place: str, content: Any, kinds: Sequence[str]) -> str:
    """A text, or the texts of parts of these kinds.  Raises :class:`RefusedError`."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") in kinds else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise invalid(place, f"must be a text, or a list of parts of type {' or '.join(kinds)}")
    return "".join(texts)  # type: ignore[arg-type]  # checked


def _call(place: str, call: Any) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not all(isinstance(function.get(key), str) for key in ("name", "arguments")):
        raise invalid(place, "must have a function with the texts name and arguments")
    return ToolCall(str(call.get("id") or ""), function["name"], function["arguments"])


# ---- replies --------------------------------------------------------------------------------------------------------


def completion(reply: ChatReply, request: ChatRequest, id: str, created: int) -> bytes:
    """The body of a reply that is sent whole."""
    logprobs = {"content": logprobs_of(reply.tokens)} if request.logprobs else None
    choice = {"index": 0, "finish_reason": reply.finish_reason, "logprobs": logprobs, "message": reply.message}
    body = _head("chat.completion", request, id, created) | {"choices": [choice]}
    return json.dumps(body | ({} if reply.usage is None else {"usage": reply.usage})).encode()


class ChatStream:
    """The events of a reply that is streamed: its begin, pieces of text, calls, its end, the tokens where they were
    asked for.
    """

    def __init__(self, request: ChatRequest, id: str, created: int) -> None:
        self._request, self._head = request, _head("chat.completion.chunk", request, id, created)

    def begin(self) -> Iterator[bytes]:
        yield self._delta({"role": "assistant", "content": ""})

    def text(self, piece: str, tokens: Sequence[Token]) -> Iterator[bytes]:
        yield self._delta({"content": piece}, tokens)

    def end(self, reply: ChatReply) -> Iterator[bytes]:
        if reply.tool_calls:
            yield self._delta({"tool_calls": [{"index": i, **call.body} for i, call in enumerate(reply.tool_calls)]})
        yield _event(self._head | {"choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}]})
        if self._request.usage and reply.usage is not None:
            yield _event(self._head | {"choices": [], "usage": reply.usage})
        yield b"data: [DONE]\n\n"

    def failed(self, error: RefusedError) -> bytes:
        return _event(error.body)

    def _delta(self, delta: Mapping[str, Any], tokens: Sequence[Token] = ()) -> bytes:
        logprobs = {"logprobs": {"content": logprobs_of(tokens)}} if self._request.logprobs and tokens else {}
        return _event(self._head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None, **logprobs}]})


def logprobs_of(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    """``tokens`` in OpenAI's form.  Others than those that were drawn are recorded nowhere."""
    return [
        {"token": text, "bytes": list(text.encode()), "logprob": logprob, "top_logprobs": []}
        for text, logprob in tokens
    ]


def models(names: Sequence[str], created: int) -> bytes:
    """The list of agents."""
    each = [{"id": name, "object": "model", "created": created, "owned_by": "troupe"} for name in names]
    return json.dumps({"object": "list", "data": each}).encode()


def _head(kind: str, request: ChatRequest, id: str, created: int) -> dict[str, Any]:
    return {"id": id, "object": kind, "created": created, "model": request.agent}


def _event(body: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def named_event(body: Mapping[str, Any]) -> bytes:
    """An event of a stream whose events have the names of their types."""
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()

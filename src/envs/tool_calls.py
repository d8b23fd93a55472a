"""Native tool calls: the functions that a world offers, and how a message that calls one is read.

The chat template shows the functions to the model (its argument ``tools``) and taught it a form to call them in; each
:data:`ToolFormat` is one family's.  ``hermes`` (Qwen2.5, Qwen3, Hermes, SmolLM3)::

    <tool_call>
    {"name": "python", "arguments": {"code": "print(6 * 7)"}}
    </tool_call>

``llama`` (Llama 3.1 to 3.3) is an object that is the whole message: ``{"name": "python", "parameters": {...}}``.

A message calls one function, once.  Thoughts are not read (:func:`.fences.spoken`).  Text around a call of Hermes is
allowed; a message without a call is plain text, which the world reads as always.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import whole_characters
from .fences import in_fence, spoken

ToolFormat = Literal["hermes", "llama"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_BODY = re.compile(r"\S")
ARGUMENTS: dict[ToolFormat, str] = {"hermes": "arguments", "llama": "parameters"}
"""The key of a call's arguments."""
MARKS: dict[ToolFormat, str] = {"hermes": OPEN, "llama": '"parameters"'}
"""What a chat template of the family contains, where it explains the form of a call."""
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
"""JSON Schema's types as Python has them."""

ROOM: dict[ToolFormat, str] = {
    "hermes": "Text outside of the call is not read.",
    "llama": "The call is the whole message.",
}
"""What else a message may have, as prompts tell it."""

READ = "The call was read."
"""The result of a call, where a world has no other."""
UNREADABLE = "The call could not be read: it must be one call of one of the functions, with its arguments as JSON."
"""The result of a malformed call."""


@dataclass(frozen=True)
class Tool:
    """A function that an agent may call; ``text`` writes the world's text of a call from its arguments.

    ``parameters`` maps the name of each argument, all of them required, to its JSON schema with ``type`` (of
    :data:`TYPES`) and ``description``.
    """

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, str]]
    text: Callable[[Mapping[str, Any]], str]

    @property
    def schema(self) -> dict[str, Any]:
        """As chat templates take it."""
        properties = {name: dict(schema) for name, schema in self.parameters.items()}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }

    def arguments_of(self, text: str) -> dict[str, str] | None:
        """The arguments whose text is ``text``; None where there are none, or the function takes no single string."""
        if not self.parameters:
            return {} if self.text({}) == text else None
        ((name, schema), *others) = self.parameters.items()
        if others or schema["type"] != "string":
            return None
        before, _, after = self.text({name: "\0"}).partition("\0")
        argument = {name: text[len(before) : len(text) - len(after)]}
        return argument if self.text(argument) == text else None

    def takes(self, arguments: Any) -> bool:
        """Whether ``arguments`` has each parameter, of its type, and nothing else."""
        return (
            isinstance(arguments, dict)
            and arguments.keys() == self.parameters.keys()
            and all(_is_a(arguments[name], schema["type"]) for name, schema in self.parameters.items())
        )


def text_tool(
    name: str,
    description: str,
    argument: str = "text",
    meaning: str = "the whole message, in the form that is asked for",
    text: Callable[[str], str] = str,
) -> Tool:
    """A function of one string, of which ``text`` makes the world's text."""
    schema = {argument: {"type": "string", "description": meaning}}
    return Tool(name, description, schema, lambda arguments: text(arguments[argument]))


def fenced(program: str) -> str:
    """The text of a call that writes ``program``."""
    return in_fence(program, "python")


ANSWER = text_tool("answer", "Give your answer.")
"""Of an agent whose message does nothing that has a name of its own."""


@dataclass(frozen=True)
class ToolOffer:
    """The tools that an agent's prompt shows, and the form in which it is to call them."""

    format: ToolFormat
    tools: tuple[Tool, ...]

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """For the chat template."""
        return [tool.schema for tool in self.tools]

    @property
    def request(self) -> str:
        """For the system message: which functions to call, and how often."""
        *others, last = (tool.name for tool in self.tools)
        names = f"one of the functions {', '.join(others)} and {last}" if others else f"the function {last}"
        return f"Call {names} once, with what you are asked for. {ROOM[self.format]}"

    def read(self, message: str) -> str | None:
        """The world's text of the call in ``message``; ``message`` itself where it calls nothing, None where its call
        is malformed."""
        bodies = calls(self.format, message)
        return message if bodies is None else self._text(bodies)

    def calls(self, message: str) -> bool:
        """Whether ``message`` calls a tool, or tries to."""
        return calls(self.format, message) is not None

    def write(self, tool: str, **arguments: Any) -> str:
        """A message that calls ``tool``, for demonstrators and tests."""
        call = json.dumps({"name": tool, ARGUMENTS[self.format]: arguments})
        return f"{OPEN}\n{call}\n{CLOSE}" if self.format == "hermes" else call

    def say(self, text: str) -> str:
        """A message whose text is ``text``: a call of the first function that can give it, else ``text`` itself."""
        written = ((tool.name, tool.arguments_of(text)) for tool in self.tools)
        calls = (self.write(name, **arguments) for name, arguments in written if arguments is not None)
        return next(calls, text)

    def _text(self, bodies: Sequence[str]) -> str | None:
        if len(bodies) != 1:
            return None
        try:
            call = json.loads(bodies[0])
        except (ValueError, RecursionError):  # deeply nested brackets
            return None
        key = ARGUMENTS[self.format]
        if not isinstance(call, dict) or call.keys() != {"name", key}:
            return None
        tool = next((tool for tool in self.tools if tool.name == call["name"]), None)
        return whole_characters(tool.text(call[key])) if tool is not None and tool.takes(call[key]) else None


def calls(format: ToolFormat, message: str) -> list[str] | None:
    """The JSON of each call in ``message``; [] where a call is not closed, None where there is none."""
    text = spoken(message).strip()
    if format == "llama":
        return [text] if text.startswith("{") else None
    bodies, outside = split_calls(text)
    if OPEN in outside or CLOSE in outside:
        return []
    return bodies or None


def split_calls(text: str) -> tuple[list[str], str]:
    """The JSON of each closed call of Hermes in ``text``, and the text outside of them.

    A mark within a string of the JSON opens and closes nothing.
    """
    bodies, outside, place = [], [], 0
    while (start := text.find(OPEN, place)) >= 0:
        begin = start + len(OPEN)
        end = text.find(CLOSE, _end_of_json(text, begin))
        if end < 0:
            break
        bodies.append(text[begin:end])
        outside.append(text[place:start])
        place = end + len(CLOSE)
    return bodies, "".join([*outside, text[place:]])


def _end_of_json(text: str, begin: int) -> int:
    """Where the JSON that begins at ``begin`` ends; ``begin`` where there is none."""
    body = _BODY.search(text, begin)
    try:
        return json.JSONDecoder().raw_decode(text, body.start())[1] if body else begin
    except (ValueError, RecursionError):  # deeply nested brackets
        return begin


def _is_a(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))

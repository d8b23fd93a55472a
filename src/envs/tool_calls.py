"""Native tool calls: the functions that a world offers, and how a message that calls one is read.

The chat template shows the functions to the model (its argument ``tools``) and taught it a form to call them in; each
:data:`ToolFormat` is one family's.  ``hermes`` (Qwen2.5, Qwen3, Hermes, SmolLM3)::

    <tool_call>
    {"name": "python", "arguments": {"code": "print(6 * 7)"}}
    </tool_call>

``llama`` (Llama 3.1 to 3.3) is an object that is the whole message: ``{"name": "python", "parameters": {...}}``.

A message calls one function, once.  Thoughts (to the last ``</think>``) are not read.  Text around a call of Hermes is
allowed; a message without a call is plain text, which the world reads as always.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

ToolFormat = Literal["hermes", "llama"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"
HERMES = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)
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

    def takes(self, arguments: Any) -> bool:
        """Whether ``arguments`` has each parameter, of its type, and nothing else."""
        return (
            isinstance(arguments, dict)
            and arguments.keys() == self.parameters.keys()
            and all(_is_a(arguments[name], schema["type"]) for name, schema in self.parameters.items())
        )


@dataclass(frozen=True)
class ToolOffer:
    """The tools that an agent's prompt shows, and the form in which it is to call them."""

    format: ToolFormat
    tools: tuple[Tool, ...]

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """For the chat template."""
        return [tool.schema for tool in self.tools]

    def read(self, message: str) -> str | None:
        """The world's text of the call in ``message``; ``message`` itself where it calls nothing, None where its call
        is malformed."""
        body = calls(self.format, message)
        if body is None:
            return message
        return self._text(body)

    def calls(self, message: str) -> bool:
        """Whether ``message`` calls a tool, or tries to."""
        return calls(self.format, message) is not None

    def write(self, tool: str, **arguments: Any) -> str:
        """A message that calls ``tool``, for demonstrators and tests."""
        call = json.dumps({"name": tool, ARGUMENTS[self.format]: arguments})
        return f"{OPEN}\n{call}\n{CLOSE}" if self.format == "hermes" else call

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
        return tool.text(call[key]) if tool is not None and tool.takes(call[key]) else None


def calls(format: ToolFormat, message: str) -> list[str] | None:
    """The JSON of each call in ``message``; [] where a call is not closed, None where there is none."""
    spoken = message.rpartition("</think>")[2].strip()
    if format == "llama":
        return [spoken] if spoken.startswith("{") else None
    bodies = HERMES.findall(spoken)
    whole = len(bodies) == spoken.count(OPEN) == spoken.count(CLOSE)
    if OPEN not in spoken and CLOSE not in spoken:
        return None
    return bodies if whole else []


def _is_a(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))

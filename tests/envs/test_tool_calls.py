"""Tool calls: which messages call a function, what the world reads, and that malformed calls are outcomes."""

from collections.abc import Hashable, Mapping
from typing import Any, get_args

import pytest

from troupe.envs.base import StepResult
from troupe.envs.history import WithHistory
from troupe.envs.testing import check_world
from troupe.envs.tool_calls import ANSWER, UNREADABLE, Tool, ToolFormat, ToolOffer, text_tool
from troupe.envs.turns import TurnTakingWorld, chat
from troupe.experience import Message, Split, Task

ADD = Tool(
    "add",
    "The sum of two numbers.",
    {"a": {"type": "number", "description": "one"}, "b": {"type": "integer", "description": "the other"}},
    lambda arguments: f"{arguments['a']}+{arguments['b']}",
)
SHOUT = Tool("shout", "Say it loud.", {"text": {"type": "string", "description": "what"}}, lambda a: a["text"].upper())
HERMES, LLAMA = (ToolOffer(form, (ADD, SHOUT)) for form in get_args(ToolFormat))


def hermes(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


CALL = hermes('{"name": "shout", "arguments": {"text": "a"}}')


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (hermes('{"name": "add", "arguments": {"a": 1.5, "b": 2}}'), "1.5+2"),
        ("Let me see.\n" + hermes('{"arguments": {"text": "a\\nb"}, "name": "shout"}') + "\nDone.", "A\nB"),
        ("<think>" + hermes("{}") + "</think>\n" + CALL.replace('"a"', '""'), ""),
        (hermes('{"name": "shout", "arguments": {"text": "</tool_call>"}}'), "</TOOL_CALL>"),
        (hermes('{"name": "shout", "arguments": {"text": "<tool_call>{}</tool_call>"}}'), "<TOOL_CALL>{}</TOOL_CALL>"),
        (hermes('{"arguments": {"text": "\\"</tool_call>"}, "name": "shout"}') + " Done.", '"</TOOL_CALL>'),
        ("no call at all", "no call at all"),
        ('{"name": "add", "parameters": {}}', '{"name": "add", "parameters": {}}'),  # of another family
        ("", ""),
    ],
)
def test_what_a_message_of_hermes_says(message: str, text: str) -> None:
    assert HERMES.read(message) == text


def test_half_a_character_in_an_argument_is_no_half_in_the_worlds_text() -> None:
    """Escapes of JSON can write one; it would be in the next prompt, which no tokenizer takes."""
    assert HERMES.read(hermes(r'{"name": "shout", "arguments": {"text": "a\ud83d"}}')) == "A\ufffd"
    assert LLAMA.read(r'{"name": "shout", "parameters": {"text": "\ud83d\ude00\udc00"}}') == "😀\ufffd"


MALFORMED = [
    "{}",
    "[]",
    "add(1, 2)",
    '{"name": "add"}',
    '{"name": "add", "arguments": {"a": 1}}',
    '{"name": "add", "arguments": {"a": 1, "b": 2, "c": 3}}',
    '{"name": "add", "arguments": {"a": 1, "b": 2}, "id": 7}',
    '{"name": "add", "arguments": {"a": 1, "b": 2.5}}',
    '{"name": "add", "arguments": {"a": true, "b": 2}}',
    '{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}',
    '{"name": "subtract", "arguments": {"a": 1, "b": 2}}',
    '{"name": ["add"], "arguments": {"a": 1, "b": 2}}',
    '{"name": "shout", "arguments": {"text": null}}',
    "{'name': 'shout', 'arguments': {'text': 'a'}}",
    "[" * 100_000,
    '{"name": "add", "arguments": {"a": ' + "9" * 5000 + ', "b": 2}}',
]


@pytest.mark.parametrize("body", MALFORMED)
def test_malformed_calls(body: str) -> None:
    assert HERMES.calls(hermes(body)) and HERMES.read(hermes(body)) is None
    other = body.replace("arguments", "parameters")
    assert LLAMA.read(other) == (None if LLAMA.calls(other) else other)


@pytest.mark.parametrize(
    "message",
    [
        CALL * 2,  # which of them?
        '<tool_call>{"name": "shout", "arguments": {"text": "a"}}',
        '{"name": "shout", "arguments": {"text": "a"}}</tool_call>',
        "<tool_call>",
        f"<tool_call>{CALL}",
        f"</tool_call>{CALL}",
        f"{CALL}<tool_call>",
        '<tool_call>{"name": "shout", "arguments": {"text": "</tool_call>',
        '<tool_call>{"name": "shout", "arguments": {"text": "</tool_call>"}}',
        hermes('{"name": "shout", "arguments": {"text": "a"}} and more'),
        "<tool_call></tool_call>",
    ],
)
def test_a_message_is_one_call_and_whole(message: str) -> None:
    assert HERMES.calls(message) and HERMES.read(message) is None


def test_a_message_of_llama_is_the_call() -> None:
    assert LLAMA.read(' {"name": "shout", "parameters": {"text": "a"}}\n') == "A"
    assert LLAMA.read('I call {"name": "shout", "parameters": {"text": "a"}}').startswith("I call")  # type: ignore[union-attr]
    assert LLAMA.read('{"name": "shout", "parameters": {"text": "a"}} and more') is None


@pytest.mark.parametrize("offer", [HERMES, LLAMA])
def test_what_is_written_is_read(offer: ToolOffer) -> None:
    message = offer.write("shout", text='"}\n</tool>\\ é')
    assert offer.calls(message) and offer.read(message) == '"}\n</TOOL>\\ É'


def test_the_schema_is_that_of_chat_templates() -> None:
    assert HERMES.schemas[0] == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "The sum of two numbers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "number", "description": "one"},
                    "b": {"type": "integer", "description": "the other"},
                },
                "required": ["a", "b"],
            },
        },
    }


def test_what_is_said_is_a_call_of_the_function_that_can_give_it() -> None:
    tag = text_tool("search", "Search.", "query", "words", "<search>{}</search>".format)
    again = Tool("again", "Ask again.", {}, lambda arguments: "[again]")
    for form in get_args(ToolFormat):
        offer = ToolOffer(form, (ADD, tag, again))
        assert offer.say("<search>a </search>") == offer.write("search", query="a ")
        assert offer.say("[again]") == offer.write("again") and offer.read(offer.say("[again]")) == "[again]"
        assert offer.say("<search>") == "<search>" and offer.say("<search></search") == "<search></search"
        assert ToolOffer(form, (tag, ANSWER)).say("1+2") == offer_text(form, "1+2")


def offer_text(form: ToolFormat, text: str) -> str:
    return ToolOffer(form, (ANSWER,)).write("answer", text=text)


def test_the_request_names_the_functions() -> None:
    assert HERMES.request.startswith("Call one of the functions add and shout once") and "outside" in HERMES.request
    assert ToolOffer("llama", (ADD,)).request.startswith("Call the function add once") and "whole" in LLAMA.request


class Echo(TurnTakingWorld):
    """Two agents at once, the first with a tool; its words are read again by both."""

    name = "echo"

    def __init__(self, **settings: Any) -> None:
        super().__init__(stages=(("caller", "other"),), horizon=3, **settings)
        self.heard: Mapping[str, str] = {}

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return [Task(f"{split}-{seed}-{number}", split, {}) for number in range(count)]

    def reset(self, task: Task) -> None:
        self._begin()
        self.heard = {}

    def _prompt(self, agent: str) -> list[Message]:
        return chat(agent, f"heard {sorted(self.heard.items())}")

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        self.heard = dict(actions)
        self._next_turn()
        return StepResult(dict.fromkeys(actions, 0.0), 0.0, self._done, False, {"malformed": 0.0})

    def _state(self) -> tuple[Hashable, ...]:
        return tuple(self.heard.items())

    def _tools(self, agent: str) -> tuple[Tool, ...]:
        return (SHOUT,) if agent == "caller" else ()

    def _tool_report(self, agent: str) -> str:
        return f"shouted {self.heard[agent]}"


CASES = [
    (HERMES.write("shout", text="hey"), "HEY", {"tool_calls": 1.0, "malformed_calls": 0.0}, "shouted HEY"),
    (hermes("{}"), "", {"tool_calls": 1.0, "malformed_calls": 1.0}, UNREADABLE),
    ("hey", "hey", {"tool_calls": 0.0, "malformed_calls": 0.0}, None),
]


@pytest.mark.parametrize(("said", "heard", "info", "result"), CASES)
async def test_a_world_reads_the_text_of_the_call(
    said: str, heard: str, info: dict[str, float], result: str | None
) -> None:
    world = WithHistory(Echo(tools="hermes"))
    world.reset(world.tasks("train", 1, 0)[0])
    step = await world.step({"caller": said, "other": said})
    assert isinstance(world.world, Echo) and world.world.heard == {"caller": heard, "other": said}
    assert info.items() <= step.info.items() and step.info["malformed"] == 0
    remembered = [message for message in world.observe("caller") if message["role"] in ("assistant", "tool")]
    tool = [] if result is None else [{"role": "tool", "content": result}]
    assert remembered == [{"role": "assistant", "content": said}, *tool]
    assert not [message for message in world.observe("other") if message["role"] == "tool"]


async def test_without_the_option_there_are_no_tools() -> None:
    world = Echo()
    world.reset(world.tasks("train", 1, 0)[0])
    step = await world.step({"caller": HERMES.write("shout", text="hey"), "other": ""})
    assert world.tools("caller") is None and world.heard["caller"].startswith("<tool_call>")
    assert not step.info.keys() & {"tool_calls", "malformed_calls"} and world.tool_result("caller") is None
    with pytest.raises(ValueError, match=r"env\.tools=openai is unknown; echo knows hermes, llama"):
        Echo(tools="openai")


@pytest.mark.parametrize("history", [False, True])
async def test_the_contract_holds_with_tools(history: bool) -> None:
    world = Echo(tools="hermes")
    await check_world(WithHistory(world) if history else world, tasks=1)

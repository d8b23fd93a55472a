"""What a chat template reads, as far as it can be told without a conversation."""

import json
import sys
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from jinja2 import TemplateError
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from troupe.envs.tool_calls import ToolOffer
from troupe.experience import Sampling
from troupe.guards import prompt_writer
from troupe.guards.prompt_writer import CLOSED, OPEN, ChatTemplateError, writer
from troupe.models.bases.loading import load_tokenizer
from troupe.rollout import chat_template
from troupe.rollout.chat_template import check_chat, try_prompts, written
from troupe.rollout.policy_client import PolicyClient, PromptError
from troupe.rollout.scripted import ScriptedEngine

from ..chat_templates import QWEN3, qwen3_tokenizer

HELLO = [{"role": "user", "content": "at 1,1"}]


@pytest.fixture
def reader(words: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """A tokenizer whose template reads ``loud``."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words._tokenizer, eos_token="<eos>", pad_token="<pad>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}{% if loud %}goal {% endif %}"
    return tokenizer


@pytest.mark.parametrize(
    ("template", "read"),
    [
        ("{{ messages[0].content }}", {"messages"}),
        ("{% if enable_thinking is defined and enable_thinking is false %}x{% endif %}", {"enable_thinking"}),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% continue %}{% endfor %}", {"messages"}),
        ("{% generation %}{{ mood }}{% endgeneration %}{{ strftime_now('%Y') }}{{ raise_exception('x') }}", {"mood"}),
        ("{% set enable_thinking = true %}{{ enable_thinking }}", set()),
    ],
)
def test_the_names_that_a_template_reads(template: str, read: set[str]) -> None:
    assert writer(template).names == read


def test_what_is_read_reaches_the_prompt(reader: PreTrainedTokenizerFast) -> None:
    check_chat("policies.p", reader, {"loud": True})
    client = PolicyClient("p", ScriptedEngine({}, reader), reader, 20, Sampling(max_tokens=1))
    loud = PolicyClient("p", ScriptedEngine({}, reader), reader, 20, Sampling(max_tokens=1), {"loud": True})
    prompts = [reader.decode(each.encode("tool", "t", HELLO)) for each in (client, loud)]
    assert prompts == ["at 1,1", "at 1,1 goal"]


@pytest.mark.parametrize(
    ("chat", "template", "message"),
    [
        ({"loudd": 1}, None, r"policies\.p\.chat\.loudd: .*policies\.p\.base does not read it; it reads loud$"),
        ({"tokenize": True}, None, r"policies\.p\.chat\.tokenize: Troupe decides this itself"),
        ({"messages": []}, None, r"policies\.p\.chat\.messages"),
        ({"loud": 1}, "{{ messages }}", "it reads nothing but the messages"),
        ({}, "{% if %}", r"policies\.p\.base: its chat template cannot be read"),
        ({}, "", r"policies\.p\.base: its tokenizer has no chat template"),
    ],
)
def test_what_is_refused(
    reader: PreTrainedTokenizerFast, chat: dict[str, object], template: str | None, message: str
) -> None:
    if template is not None:
        reader.chat_template = template or None
    with pytest.raises(ChatTemplateError, match=message):
        check_chat("policies.p", reader, chat)


# ---- templates and tokenizers that are made to harm -----------------------------------------------------------------

GROW = "{% set ns = namespace(s='aa') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}"
HOSTILE = {
    "a constant of ten gigabytes": ("{{ 'a' * 10**10 }}", "needs more than"),
    "a message of terabytes": ("{{ messages[0].content * 10**9 }}", "needs more than"),
    "a padded word": ("{{ 'x'.ljust(10**10) }}", "needs more than"),
    "a padded number": ("{{ '%9999999999d' % 1 }}", "needs more than"),
    "a text that doubles": (GROW, "needs more than"),
    "a text that is replaced": ("{{ ('a' * 10**5).replace('a', 'b' * 10**5) }}", "needs more than"),
    "many lines": (
        "{% for i in range(2000) %}{{ messages[-1].content }}{% endfor %}",
        r"makes \d+ characters of",
    ),
    "loops in loops": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "takes longer than 1 s",
    ),
    "a large power": ("{{ 9 ** (9 ** 9) }}", "takes longer than 1 s"),
    "a macro that calls itself": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
    "a long range": ("{% for i in range(999999) %}{% endfor %}", "OverflowError"),
    "a class of Python": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
    "a function's globals": ("{{ raise_exception.__globals__.os }}", "SecurityError"),
    "a format with attributes": ("{{ '{0.__class__.__mro__}'.format(1) }}", "SecurityError"),
    "a change of the messages": ("{{ messages.append(1) }}", "SecurityError"),
    "a file": ("{% include '/etc/passwd' %}", "no loader"),
    "brackets": ("{{ " + "(" * 10_000 + "1" + ")" * 10_000 + " }}", "RecursionError"),
    "a word in its namespace": ("{% set ns = namespace(__html__=1) %}{{ ns }}", "SecurityError"),
}


def lower_limits(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """The limit that ``message`` names, so low that it is reached long before the other one on any machine."""
    if "takes longer" in message:
        monkeypatch.setattr(chat_template, "TRIAL_CPU_S", 1)
        monkeypatch.setattr(prompt_writer, "CPU_S", 1)
    elif "needs more" in message:
        monkeypatch.setattr(chat_template, "TRIAL_MEMORY", 1 << 29)
        monkeypatch.setattr(prompt_writer, "MEMORY", 1 << 29)


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_templates(reader: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    reader.chat_template, message = HOSTILE[case]
    lower_limits(monkeypatch, message)
    with pytest.raises(
        ChatTemplateError, match=rf"policies\.p\.base: its chat template cannot write prompts: .*{message}"
    ):
        try_prompts("policies.p", reader, {})


class Marker:
    """In place of ``ctypes.cdll``: an item of it is a library that is loaded."""

    loaded = False

    def __getitem__(self, name: str) -> object:
        self.loaded = True
        return self


GLOBALS = "([1]|batch(1)).gi_frame.f_globals['re'].enum.sys.modules['marker']['x']"
LATER = "{% for m in messages %}{{ m.content }}{% endfor %}{% if 'now' in messages[-1].content %}PART{% endif %}"


@pytest.mark.parametrize("part", [f"{{{{ {GLOBALS} }}}}", f"{{% if false %}}{{{{ {GLOBALS} }}}}{{% endif %}}"])
def test_no_constant_is_evaluated_here(
    reader: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setitem(sys.modules, "marker", marker := Marker())  # type: ignore[arg-type]  # no module
    reader.chat_template = "{{ messages[0].content }}" + part
    client = PolicyClient("p", ScriptedEngine({}, reader), reader, 20, Sampling(max_tokens=1))
    for attempt in (
        lambda: check_chat("policies.p", reader, {}),
        lambda: try_prompts("policies.p", reader, {}),
        lambda: client.encode("tool", "t", HELLO),
        lambda: client.encode("tool", "t", HELLO, ToolOffer("hermes", ())),
    ):
        with suppress(ChatTemplateError, PromptError):
            attempt()
        assert not marker.loaded


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (f"{{{{ {GLOBALS} }}}}", "SecurityError: access to attribute 'gi_frame'"),
        ("{{ messages[0].content * 10**9 }}", "needs more than 512 MiB"),
        ("{% for i in range(9999) %}{{ messages[0].content }}{% endfor %}", r"LengthError: it makes \d+ characters of"),
    ],
)
def test_what_behaves_on_trial_is_limited_later(
    reader: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, part: str, message: str
) -> None:
    monkeypatch.setattr(prompt_writer, "CPU_S", 1)
    monkeypatch.setattr(prompt_writer, "MEMORY", 1 << 29)
    reader.chat_template = LATER.replace("PART", part)
    try_prompts("policies.p", reader, {})
    client = PolicyClient("p", ScriptedEngine({}, reader), reader, 20, Sampling(max_tokens=1))
    with pytest.raises(PromptError, match=rf"^agent 'tool', task t: .* policy 'p' cannot write .*: .*{message}"):
        client.encode("tool", "t", [{"role": "user", "content": "at 1,1 now, and at once"}])
    assert reader.decode(client.encode("tool", "t", HELLO)) == "at 1,1"  # in a new process


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% if a %}" * 50_000, "cannot be read: RecursionError"),
        ("x" * (1 << 21), "cannot be read: it has 2097152 characters"),
        (7, "cannot be read: it is no text"),
    ],
)
def test_templates_that_cannot_be_read(reader: PreTrainedTokenizerFast, template: Any, message: str) -> None:
    reader.chat_template = template
    with pytest.raises(ChatTemplateError, match=rf"^policies\.p\.base: its chat template {message}"):
        check_chat("policies.p", reader, {})


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10**6}}, "needs more than"),
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a " * 100}}, r"makes \d+ tokens"),
        (
            {
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": "(a|a)+$|b"},
                    "behavior": "Isolated",
                    "invert": 0 > 1,
                }
            },
            "takes longer than|it fails",
        ),
    ],
)
def test_hostile_tokenizers(
    words: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, part: dict[str, Any], message: str
) -> None:
    lower_limits(monkeypatch, message)
    content = json.loads(words.backend_tokenizer.to_str())
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(content | part)), eos_token="<eos>", pad_token="<pad>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}b {% endfor %}"
    with pytest.raises(ChatTemplateError, match=message):
        try_prompts("policies.p", tokenizer, {})


GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}{% if loop.index0 % 2 %}{{ raise_exception('roles') }}{% endif %}"
    "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}{{ strftime_now('%Y') }}"
)


@pytest.mark.parametrize("template", [None, GEMMA])
def test_honest_ones_are_not_refused(reader: PreTrainedTokenizerFast, template: str | None) -> None:
    if template is not None:
        reader.chat_template = template
    try_prompts("policies.p", reader, {"loud": True})
    try_prompts("policies.p", load_tokenizer("laptop_math"), {})


LLAMA3 = (
    "{{- bos_token }}{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}"
    "{%- for m in messages %}{%- set head = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' %}"
    "{{- head + m['content'] | trim + '<|eot_id|>' }}{%- endfor %}{{- date_string }}"
    "{%- if tools is not none %}{{- tools | tojson(indent=4) }}{%- endif %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OTHER = (
    "{% set ns = namespace(n=0, last=dict(role='none')) %}\n{% for m in messages %}\n  {% if m.role == 'system' %}"
    "{% continue %}{% endif %}\n{% set ns.n = ns.n + 1 %}{% set ns.last = m %}"
    "{% generation %}{{ m | tojson(ensure_ascii=true, sort_keys=true) }}{% endgeneration %}\n"
    "{% if ns.n > 2 %}{% break %}{% endif %}{% endfor %}\n{{ ns.last.role }} {{ mood | default('calm') }}"
)


def test_what_a_template_refuses_is_a_line_that_a_terminal_only_shows(reader: PreTrainedTokenizerFast) -> None:
    reader.chat_template = "{{ raise_exception('\x1b[31mno\n\nerror: \u202eyes') }}"
    with pytest.raises(ChatTemplateError, match=r"^�\[31mno error: �yes$"):
        written(reader, [{"role": "user", "content": "hi"}], None, {})


@pytest.mark.parametrize("template", [prompt_writer.RAW, CLOSED, OPEN, QWEN3, LLAMA3, SMOLLM2, OTHER, GEMMA])
def test_prompts_are_those_of_transformers(template: str) -> None:
    tokenizer = qwen3_tokenizer(template)
    tools = [{"type": "function", "function": {"name": "f", "description": "\u00e9 <x>", "parameters": {}}}]
    texts = ("S\u00e9 <b> {{ x }}", "hi \n\n there", "<think>\nt\n</think>\n\nyes", " more ")
    for roles, offered, chat in product(
        (("user",), ("user", "assistant", "user"), ("system", "user", "assistant", "user")),
        (None, tools),
        ({}, {"enable_thinking": False, "bos_token": "<s>", "mood": [1, {"a": None}]}),
    ):
        messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
        try:
            expected = tokenizer.apply_chat_template(
                messages, tools=offered, add_generation_prompt=True, tokenize=False, **chat
            )
        except TemplateError as error:
            with pytest.raises(ChatTemplateError, match=str(error)):
                written(tokenizer, messages, offered, chat)
        else:
            assert written(tokenizer, messages, offered, chat) == expected


def test_words_that_are_given_are_written_as_they_stand() -> None:
    """The shipped tokenizers write blanks between words, so that "at" and "2,2" would be read as "at2,2"."""
    tokenizer = load_tokenizer("laptop")
    check_chat("policies.p", tokenizer, {"prefill": "at "})
    with pytest.raises(ChatTemplateError, match=r"^policies\.p\.chat\.prefill='at': after it .*; end it with a blank$"):
        check_chat("policies.p", tokenizer, {"prefill": "at"})
    with pytest.raises(
        ChatTemplateError, match=r"^policies\.p\.chat\.prefill='Well ': policies\.p\.base has no tokens"
    ):
        check_chat("policies.p", tokenizer, {"prefill": "Well "})

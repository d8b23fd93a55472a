"""What a chat template reads, as far as it can be told without a conversation."""

import json
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from troupe.experience import Sampling
from troupe.models.loading import load_tokenizer
from troupe.rollout import chat_template
from troupe.rollout.chat_template import ChatTemplateError, check_chat, names, try_prompts
from troupe.rollout.engines.scripted import ScriptedEngine
from troupe.rollout.policy_client import PolicyClient

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
    assert names(template) == read


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
    "a constant of ten gigabytes": ("{{ 'a' * 10**10 }}", "need more than"),
    "a message of terabytes": ("{{ messages[0].content * 10**9 }}", "need more than"),
    "a padded word": ("{{ 'x'.ljust(10**10) }}", "need more than"),
    "a padded number": ("{{ '%9999999999d' % 1 }}", "need more than"),
    "a text that doubles": (GROW, "need more than"),
    "a text that is replaced": ("{{ ('a' * 10**5).replace('a', 'b' * 10**5) }}", "need more than"),
    "many lines": (
        "{% for i in range(2000) %}{{ messages[-1].content }}{% endfor %}",
        r"makes \d+ characters of 20000",
    ),
    "loops in loops": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "take longer than 2 s",
    ),
    "a large power": ("{{ 9 ** (9 ** 9) }}", "take longer than 2 s"),
    "a macro that calls itself": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
    "a long range": ("{% for i in range(999999) %}{% endfor %}", "OverflowError"),
    "a class of Python": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
    "a function's globals": ("{{ raise_exception.__globals__.os }}", "SecurityError"),
    "a format with attributes": ("{{ '{0.__class__.__mro__}'.format(1) }}", "SecurityError"),
    "a change of the messages": ("{{ messages.append(1) }}", "SecurityError"),
}


def lower_limits(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """The limit that ``message`` names, so low that it is reached long before the other one on any machine."""
    if "take longer" in message:
        monkeypatch.setattr(chat_template, "TRIAL_CPU_S", 2)
    elif "need more" in message:
        monkeypatch.setattr(chat_template, "TRIAL_MEMORY", 1 << 29)


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_templates(reader: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    reader.chat_template, message = HOSTILE[case]
    lower_limits(monkeypatch, message)
    with pytest.raises(ChatTemplateError, match=rf"policies\.p\.base: .* cannot write prompts: .*{message}"):
        try_prompts("policies.p", reader, {})


@pytest.mark.parametrize("template", ["{% if a %}" * 50_000, "x" * (1 << 21)])
def test_templates_that_are_too_large(reader: PreTrainedTokenizerFast, template: str) -> None:
    reader.chat_template = template
    with pytest.raises(ChatTemplateError, match=r"policies\.p\.base: its chat template"):
        check_chat("policies.p", reader, {})


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10**6}}, "need more than"),
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
            "take longer than|tokenizer fails",
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

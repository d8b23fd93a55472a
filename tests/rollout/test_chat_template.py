"""What a chat template reads, as far as it can be told without a conversation."""

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.experience import Sampling
from troupe.rollout.chat_template import ChatTemplateError, check_chat, names
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

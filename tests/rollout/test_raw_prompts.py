"""Raw prompts: plain text for base models without a chat template."""

from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from troupe.errors import ConfigError
from troupe.experience import Sampling
from troupe.guards.prompt_writer import ChatTemplateError
from troupe.rollout.chat_template import check_chat, raw_prompts
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.scripted import ScriptedEngine
from troupe.setup.policies import read_chat

from ..chat_templates import qwen3_tokenizer

MESSAGES = [
    {"role": "system", "content": "You write code."},
    {"role": "user", "content": "def f(x):"},
    {"role": "assistant", "content": "return x"},
    {"role": "user", "content": "<|im_end|>"},
]


def encoded(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    client = PolicyClient("p", ScriptedEngine({}, tokenizer), tokenizer, 999, Sampling(max_tokens=9), raw_prompts())
    return list(client.encode("main", "t", MESSAGES))


def test_a_prompt_is_the_texts_with_empty_lines_between() -> None:
    tokenizer = qwen3_tokenizer(None)
    with pytest.raises(ChatTemplateError, match=r"has no chat template .*policies\.p\.prompts=raw gives plain text"):
        check_chat("policies.p", tokenizer, {})
    check_chat("policies.p", tokenizer, raw_prompts())
    ids = encoded(tokenizer)
    assert tokenizer.decode(ids) == "You write code.\n\ndef f(x):\n\nreturn x\n\n< |im_end|>\n\n"
    assert not set(ids) & set(tokenizer.all_special_ids)
    assert ids == encoded(qwen3_tokenizer())  # whatever template there is


def test_it_begins_as_the_tokenizer_begins_a_text() -> None:
    tokenizer = qwen3_tokenizer(None)
    plain, begin = encoded(tokenizer), tokenizer.convert_tokens_to_ids("<|im_start|>")
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", begin)]
    )
    assert encoded(tokenizer) == [begin, *plain]


@pytest.mark.parametrize(
    ("node", "chat"),
    [
        ({}, {}),
        ({"prompts": "chat", "chat": {"enable_thinking": False}}, {"enable_thinking": False}),
        ({"prompts": "raw", "chat": {}}, raw_prompts()),
        ({"prompts": "raw", "chat": {"prefill": "def "}}, {"prefill": "def ", **raw_prompts()}),
    ],
)
def test_the_key(node: dict[str, Any], chat: dict[str, Any]) -> None:
    assert read_chat("policies.p", node) == chat


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"prompts": "plain"}, r"policies\.p\.prompts=plain is unknown"),
        ({"chat": {"prefill": 3}}, r"policies\.p\.chat\.prefill must be a text, got 3"),
        ({"prompts": "raw", "chat": {"enable_thinking": False}}, r"policies\.p\.chat=.*no chat template reads it"),
    ],
)
def test_keys_that_are_refused(node: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_chat("policies.p", node)

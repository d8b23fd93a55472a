"""What a policy's chat template is given beside the messages: ``policies.NAME.chat``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, meta, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from transformers import PreTrainedTokenizerBase

OWN = {"messages", *inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters}
"""What ``apply_chat_template`` takes itself, and Troupe decides."""

OFFERED = {"raise_exception", "strftime_now"}
"""Functions that transformers hands to every template."""


class ChatTemplateError(ValueError):
    """A chat template that is missing, or that does not read what it is given; the message names the key."""


class _Generation(Extension):
    """transformers' ``{% generation %}`` block, which marks what an assistant has said."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def check_chat(key: str, tokenizer: PreTrainedTokenizerBase, chat: Mapping[str, Any]) -> None:
    """``key`` is the policy's, ``chat`` what its tokenizer's template is given.

    Raises :class:`ChatTemplateError` where there is no template, and for an argument that it never names: whatever
    value it had, the prompt would be the same.
    """
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:
        raise ChatTemplateError(
            f"{key}.base: its tokenizer has no chat template to write prompts with: {error}"
        ) from error
    try:
        named = names(template)
    except TemplateSyntaxError as error:
        raise ChatTemplateError(f"{key}.base: its chat template cannot be read: {error}") from error
    for name in chat:
        if name in OWN:
            raise ChatTemplateError(f"{key}.chat.{name}: Troupe decides this itself")
        if name not in named:
            known = ", ".join(sorted(named - OWN)) or "nothing but the messages"
            raise ChatTemplateError(
                f"{key}.chat.{name}: the chat template of {key}.base does not read it; it reads {known}"
            )


def names(template: str) -> set[str]:
    """The free names of a chat template: what it can be given.  Raises jinja2's ``TemplateSyntaxError``."""
    environment = Environment(extensions=[_Generation, loopcontrols])  # it is parsed, and renders nothing
    return meta.find_undeclared_variables(environment.parse(template)) - environment.globals.keys() - OFFERED

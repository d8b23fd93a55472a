"""The arguments of a policy's chat template beside the messages: ``policies.NAME.chat``."""

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
"""Arguments of ``apply_chat_template`` itself, which Troupe decides."""

OFFERED = {"raise_exception", "strftime_now"}
"""Functions that transformers hands to every template."""


class ChatTemplateError(ValueError):
    """A chat template that is missing, or that does not read one of its arguments; the message names the key."""


class _Generation(Extension):
    """transformers' ``{% generation %}`` block, which marks the assistant's messages."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def check_chat(key: str, tokenizer: PreTrainedTokenizerBase, chat: Mapping[str, Any]) -> None:
    """``key`` is the policy's, ``chat`` the arguments of its tokenizer's template.

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
        free_names = names(template)
    except TemplateSyntaxError as error:
        raise ChatTemplateError(f"{key}.base: its chat template cannot be read: {error}") from error
    for name in chat:
        if name in OWN:
            raise ChatTemplateError(f"{key}.chat.{name}: Troupe decides this itself")
        if name not in free_names:
            readable = ", ".join(sorted(free_names - OWN)) or "nothing but the messages"
            raise ChatTemplateError(
                f"{key}.chat.{name}: the chat template of {key}.base does not read it; it reads {readable}"
            )


def names(template: str) -> set[str]:
    """The free names of a chat template, its possible arguments.  Raises jinja2's ``TemplateSyntaxError``."""
    environment = Environment(extensions=[_Generation, loopcontrols])  # it is parsed, and renders nothing
    return meta.find_undeclared_variables(environment.parse(template)) - environment.globals.keys() - OFFERED

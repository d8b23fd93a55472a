"""The arguments of a policy's chat template beside the messages: ``policies.NAME.chat``."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
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

TRIAL = Path(__file__).with_name("template_trial.py")
TRIAL_CPU_S, TRIAL_MEMORY = 10, 2 << 30
"""Of a template and tokenizer on trial: seconds, and bytes of address space."""
TRIAL_WALL_S = 120.0
LONGEST_TEMPLATE = 1 << 20
"""Characters."""


RAW = "{% for message in messages %}{{ message['content'] }}\n\n{% endfor %}"
"""The template of raw prompts, for base models without one: the messages' texts, each with an empty line after it, and
nothing of their roles.  Before them comes what the tokenizer itself begins a text with, if anything."""


class ChatTemplateError(ValueError):
    """A chat template that is missing, or that does not read one of its arguments; the message names the key."""


class _Generation(Extension):
    """transformers' ``{% generation %}`` block, which marks the assistant's messages."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def check_chat(key: str, tokenizer: PreTrainedTokenizerBase, chat: Mapping[str, Any]) -> None:
    """``key`` is the policy's, ``chat`` the arguments of its tokenizer's template, or :func:`raw_prompts`.

    Raises :class:`ChatTemplateError` where there is no template, and for an argument that it never names: whatever
    value it had, the prompt would be the same.
    """
    if is_raw(chat):
        return
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:
        raise ChatTemplateError(
            f"{key}.base: its tokenizer has no chat template to write prompts with; {key}.prompts=raw gives plain "
            f"text: {error}"
        ) from error
    if len(template) > LONGEST_TEMPLATE:
        raise ChatTemplateError(f"{key}.base: its chat template has {len(template)} characters")
    try:
        free_names = names(template)
    except (TemplateSyntaxError, RecursionError) as error:
        raise ChatTemplateError(f"{key}.base: its chat template cannot be read: {error}") from error
    for name in chat:
        if name in OWN:
            raise ChatTemplateError(f"{key}.chat.{name}: Troupe decides this itself")
        if name not in free_names:
            readable = ", ".join(sorted(free_names - OWN)) or "nothing but the messages"
            raise ChatTemplateError(
                f"{key}.chat.{name}: the chat template of {key}.base does not read it; it reads {readable}"
            )


def raw_prompts() -> dict[str, Any]:
    """In place of a template's arguments: prompts are written by :data:`RAW`."""
    return {"chat_template": RAW}


def is_raw(chat: Mapping[str, Any]) -> bool:
    """Whether these are :func:`raw_prompts`."""
    return dict(chat) == raw_prompts()


def try_prompts(key: str, tokenizer: PreTrainedTokenizerBase, chat: Mapping[str, Any]) -> None:
    """Write prompts for the policy ``key`` with the template and the tokenizer of others, in a process with limits.

    Raises :class:`ChatTemplateError` where they take too long, need too much memory, make far more of a text than it
    has, or reach for Python.
    """
    template = RAW if is_raw(chat) else tokenizer.get_chat_template()
    own = {} if is_raw(chat) else chat
    arguments = {**{name: str(token) for name, token in tokenizer.special_tokens_map.items()}, **own}
    if reason := _refusal(template, json.dumps(arguments), tokenizer.backend_tokenizer.to_str()):
        raise ChatTemplateError(f"{key}.base: its chat template and tokenizer cannot write prompts: {reason}")


@lru_cache(maxsize=16)
def _refusal(template: str, arguments: str, tokenizer: str) -> str:
    """The reason; "" where there is none."""
    asked = {"template": template, "arguments": json.loads(arguments), "tokenizer": tokenizer}
    limits = {"cpu_s": TRIAL_CPU_S, "memory": TRIAL_MEMORY}
    try:
        trial = subprocess.run(
            [sys.executable, "-P", str(TRIAL)],
            input=json.dumps(asked | limits),
            capture_output=True,
            text=True,
            timeout=TRIAL_WALL_S,
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},  # threads would take address space
        )
    except subprocess.TimeoutExpired:
        return f"they take longer than {TRIAL_WALL_S:.0f} s"
    if not trial.returncode:
        return str(json.loads(trial.stdout))
    if trial.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"they take longer than {TRIAL_CPU_S} s"
    if trial.returncode == -signal.SIGABRT:
        return f"they need more than {TRIAL_MEMORY >> 20} MiB"
    last = (trial.stderr.strip().splitlines() or [f"status {trial.returncode}"])[-1]
    return f"their trial ended with {last}"


def names(template: str) -> set[str]:
    """The free names of a chat template, its possible arguments.  Raises jinja2's ``TemplateSyntaxError``."""
    environment = Environment(extensions=[_Generation, loopcontrols])  # it is parsed, and renders nothing
    return meta.find_undeclared_variables(environment.parse(template)) - environment.globals.keys() - OFFERED

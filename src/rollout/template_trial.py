"""A program, not a module: writes prompts with a chat template and a tokenizer, whoever made them, within limits.

jinja's sandbox keeps a template from Python, but not from taking all memory or time, and a tokenizer may multiply a
text or search it without end.  So they are tried in a process of their own before they write a prompt in the run's.

Standard input: JSON with ``template``, its ``arguments``, ``tokenizer`` (the text of tokenizer.json), and the limits
``cpu_s`` and ``memory`` (bytes), which hold on Linux.  Standard output: the reason for a refusal, or nothing.
"""

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import ext, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

LONGEST = 20_000
"""Characters of the longest message on trial."""
MOST, OWN = 8, 100_000
"""Characters and tokens of a prompt, at most: so many per character of its messages, and so many beside."""
TEXTS = (
    "at 1,1",
    "",
    "a" * LONGEST,
    "Where? {{ 7 * 7 }}\n\n" * (LONGEST // 20),
    "\u00e9\u4e2d\U0001f642 " * (LONGEST // 4),
)
ROLES = (("user",), ("system", "user"), ("system", "user", "assistant", "user"))
REFUSED = (RecursionError, OverflowError, SecurityError)


class Generation(ext.Extension):
    """transformers' ``{% generation %}`` block."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        next(parser.stream)
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def main() -> None:
    asked = json.load(sys.stdin)
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (asked["cpu_s"], asked["cpu_s"] + 1))
        resource.setrlimit(resource.RLIMIT_AS, (asked["memory"], asked["memory"]))
    try:
        reason = refusal(asked["template"], asked["arguments"], asked["tokenizer"])
    except MemoryError:
        reason = f"they need more than {asked['memory'] >> 20} MiB"
    print(json.dumps(reason))


def refusal(template: str, arguments: Mapping[str, Any], tokenizer: str) -> str:
    """The reason; "" where there is none.  Raises ``MemoryError``."""
    try:
        compiled = environment().from_string(template)
    except REFUSED as error:
        return described(error)
    tokens = Tokenizer.from_str(tokenizer)
    for roles in ROLES:
        for text in TEXTS:
            messages = [{"role": role, "content": text} for role in roles]
            try:
                prompt = compiled.render(messages=messages, add_generation_prompt=True, **arguments)
            except MemoryError:
                raise
            except REFUSED as error:
                return described(error)
            except Exception:  # it does not take these roles, or this text
                continue
            most = OWN + MOST * len(roles) * len(text)
            if len(prompt) > most:
                return f"the template makes {len(prompt)} characters of {len(roles) * len(text)}"
            try:
                ids = tokens.encode(prompt, add_special_tokens=False).ids
            except BaseException as error:  # a panic of the library is no Exception
                return f"the tokenizer fails: {error}"
            if len(ids) > most:
                return f"the tokenizer makes {len(ids)} tokens of {len(prompt)} characters"
    return ""


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def environment() -> ImmutableSandboxedEnvironment:
    """As transformers makes it."""

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals |= {"raise_exception": raise_exception, "strftime_now": lambda form: datetime.now().strftime(form)}
    return made


if __name__ == "__main__":
    main()

"""A chat template, read and rendered; as a program, within limits.

jinja's sandbox keeps a template from Python, but not from taking all memory or time, and jinja evaluates constants
while it compiles.  So templates of others are read and rendered by this program, in a process of their own
(:mod:`.prompt_writer`): it starts fast, because it imports nothing but jinja.

Arguments: the seconds of CPU for each line, and the bytes of address space (on Linux).  Standard input: lines of JSON,
first the template, then the arguments of one prompt each.  Standard output: a line of JSON for each, ``names``, then
``prompt``; or ``refusal``, where the template does not take the arguments; or ``harm``, where it is of no use.
"""

import json
import signal
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import ext, meta, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MOST, OWN = 8, 100_000
"""Characters of a prompt, at most: so many per character of its arguments, and so many beside."""
HARM = (RecursionError, OverflowError, SecurityError)
LONGEST_REASON = 500
"""Characters."""


class LengthError(SecurityError):
    """A prompt that is far longer than what it is made of."""


class Template:
    """A chat template.  ``names`` are its free names, its possible arguments.

    Raises jinja2's ``TemplateSyntaxError``, and what evaluating its constants raises.
    """

    def __init__(self, text: str) -> None:
        environment = _environment()
        self.names = frozenset(meta.find_undeclared_variables(environment.parse(text)))
        self._compiled = environment.from_string(text)

    def write(self, arguments: Mapping[str, Any]) -> str:
        """The prompt, as transformers' ``apply_chat_template`` writes it.

        Raises :class:`LengthError`, and whatever the template does.
        """
        prompt = self._compiled.render(arguments)
        length = len(json.dumps(arguments, ensure_ascii=False))
        if len(prompt) > OWN + MOST * length:
            raise LengthError(f"it makes {len(prompt)} characters of {length}")
        return prompt


class _Generation(ext.Extension):
    """transformers' ``{% generation %}`` block, which marks the assistant's messages."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        next(parser.stream)
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class _Namespace(Namespace):
    """Without names that Python gives a meaning."""

    def __init__(*args: Any, **values: Any) -> None:
        self, *given = args  # so that a value may be called `self`
        Namespace.__init__(self)
        for name, value in dict(*given, **values).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a namespace has no {name}")
        super().__setitem__(name, value)


def _environment() -> ImmutableSandboxedEnvironment:
    """As transformers makes it."""

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals |= {"raise_exception": raise_exception, "strftime_now": lambda form: datetime.now().strftime(form)}
    made.globals |= {"dict": lambda *pairs, **values: dict(*pairs, **values), "namespace": _Namespace}
    return made


def _line(reason: str) -> str:
    """Without what a terminal would obey: the template may have chosen the words."""
    words = " ".join(reason[:LONGEST_REASON].split())
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in words)


def main() -> None:
    cpu_s, memory = map(int, sys.argv[1:])
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    template: Template | None = None
    for line in sys.stdin:
        # Nobody handles its signal, so that the kernel ends the process, even within one long operation.
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        answer: dict[str, Any]
        try:
            asked = json.loads(line)
            if template is None:
                template = Template(asked)
                answer = {"names": sorted(template.names)}
            else:
                answer = {"prompt": template.write(asked)}
        except MemoryError:
            answer = {"harm": f"it needs more than {memory >> 20} MiB"}
        except HARM as error:
            answer = {"harm": _line(f"{type(error).__name__}: {error}")}
        except Exception as error:  # whatever a template can raise
            kind = "harm" if template is None else "refusal"
            answer = {kind: _line(str(error)) or type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

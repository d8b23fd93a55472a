"""Prompts written with a chat template, whoever made it.

A template is a program.  Those that Troupe ships are rendered here; every other one is read and rendered in a process
with limits (:mod:`.template_program`), never in this one, whatever it was tried with before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import jinja2
import markupsafe

from .template_program import Template

RAW = "{% for message in messages %}{{ message['content'] }}\n\n{% endfor %}"
"""The template of raw prompts, for base models without one: the messages' texts, each with an empty line after it, and
nothing of their roles.  Before them comes what the tokenizer itself begins a text with, if anything."""
CLOSED = (
    "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}<answer>{% endif %}"
)
"""The template of closed vocabularies."""
OPEN = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|answer|>{% endif %}"
)
"""The template of Troupe's tokenizers that write any text."""
SHIPPED = (RAW, CLOSED, OPEN)

PROGRAM = Path(__file__).with_name("template_program.py")
CPU_S, MEMORY = 10, 2 << 30
"""Of the process of a template: seconds for one prompt, and bytes of address space."""
LONGEST = 1 << 20
"""Characters of a template."""
PACKAGES = os.pathsep.join(str(Path(package.__path__[0]).parent) for package in (jinja2, markupsafe))
"""Where the program finds what it imports."""


class ChatTemplateError(ValueError):
    """A chat template that is missing, that does not take what it is given, or that nobody should use."""


class HarmfulTemplateError(ChatTemplateError):
    """A chat template that cannot be read, takes too long, needs too much memory, makes far more of a text than it has,
    or reaches for Python."""


def writer(template: object) -> Template | LimitedTemplate:
    """The writer of prompts with ``template``; it may be called in any thread.

    Raises :class:`ChatTemplateError` for what is no text, or a very long one.
    """
    if not isinstance(template, str):
        raise ChatTemplateError(f"it is no text: {type(template).__name__}")
    if len(template) > LONGEST:
        raise ChatTemplateError(f"it has {len(template)} characters, and {LONGEST} at most are read")
    return _writer(template, os.getpid())  # a process that was forked from this one has processes of its own


@lru_cache(maxsize=16)
def _writer(template: str, process_id: int) -> Template | LimitedTemplate:
    return Template(template) if template in SHIPPED else LimitedTemplate(template)


class LimitedTemplate:
    """A chat template in a process with limits, which starts with the first question, and anew after one that has ended
    it.

    Every call raises :class:`ChatTemplateError` where the template cannot be read.
    """

    def __init__(self, text: str) -> None:
        self._text, self._lock = text, Lock()
        self._process: subprocess.Popen[str] | None = None
        self._names = frozenset[str]()

    @property
    def names(self) -> frozenset[str]:
        """The free names of the template, its possible arguments."""
        with self._running():
            return self._names

    def write(self, arguments: Mapping[str, Any]) -> str:
        """The prompt of ``arguments``, which are fit for JSON.  Raises :class:`ChatTemplateError`."""
        question = json.dumps(arguments)
        with self._running() as process:
            answer = _asked(process, question)
        return str(_checked(answer)["prompt"])

    @contextmanager
    def _running(self) -> Iterator[subprocess.Popen[str]]:
        with self._lock:
            process, self._process = self._process or self._started(), None
            try:
                yield process
            except BaseException:  # within a question: the next one would get its answer
                self._end()
                raise
            self._process = process

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-S", str(PROGRAM), str(CPU_S), str(MEMORY)],  # no site: it takes its time
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C is for this process, which may write prompts until its iteration ends
            env={"PYTHONPATH": PACKAGES, **{name: os.environ[name] for name in ("TZ",) if name in os.environ}},
        )
        self._end = weakref.finalize(self, _end, process)
        try:
            self._names = frozenset(_checked(_asked(process, json.dumps(self._text)))["names"])
        except BaseException:
            self._end()
            raise
        return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):  # what it did not read
                stream.close()


def _asked(process: subprocess.Popen[str], question: str) -> Mapping[str, Any]:
    """The answer to ``question``.  Raises :class:`HarmfulTemplateError` where it ends the process."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with suppress(BrokenPipeError):  # it has ended, and its status says why
        process.stdin.write(question + "\n")
        process.stdin.flush()
    if line := process.stdout.readline():
        answer: Mapping[str, Any] = json.loads(line)
        return answer
    status = process.wait()
    if status == -signal.SIGPROF:
        raise HarmfulTemplateError(f"it takes longer than {CPU_S} s")
    if status == -signal.SIGABRT:
        raise HarmfulTemplateError(f"it needs more than {MEMORY >> 20} MiB")
    last = (process.stderr.read().strip().splitlines() or [f"status {status}"])[-1]
    raise HarmfulTemplateError(f"its process ended with {last}")


def _checked(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, kind in (("harm", HarmfulTemplateError), ("refusal", ChatTemplateError)):
        if reason := answer.get(name):
            raise kind(reason)
    return answer

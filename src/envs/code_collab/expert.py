"""The expert of ``feedback=expert``: another model, behind an OpenAI-compatible server, proposes edits."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ...errors import AbsentError, check_above_zero, check_variable, check_whole, variable
from ..base import WorldFailure

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Edits = tuple[str, str]
"""Of aux and of main; empty where there are none."""

NOTHING: Final[Edits] = ("", "")
CACHED: Final = 4096
MAX_CHARS: Final = 4000
"""Of one agent's edits."""


class ExpertFailure(WorldFailure):
    """The expert's server refused or stayed away."""


class Expert:
    """A model that proposes edits of two functions.

    ``url`` is the server's, up to and without ``/chat/completions``; ``key_env`` names the variable of the environment
    with its key.  The client repeats a request without an answer ``retries`` times; an answer without the two texts is
    requested again as often, and then counts as no edits.  Equal questions are asked once.  A copy is the object.

    Raises ``ValueError`` for settings out of range, :class:`...errors.AbsentError` where client or key is missing.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_env: str | None = None,
        temperature: float = 0.0,
        max_tokens: int = 2048,
        retries: int = 3,
        timeout_s: float = 120.0,
    ) -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname or place.username or place.query:
            raise ValueError(f"env.expert.url must be http(s)://HOST/..., without user or query, got {url!r}")
        check_whole("env.expert.retries", retries, 0)
        check_whole("env.expert.max_tokens", max_tokens, 1)
        check_above_zero("env.expert.timeout_s", timeout_s)
        check_variable("env.expert.key_env", key_env)
        self.url, self.model, self.key_env, self.temperature = url, model, key_env, temperature
        self.max_tokens, self.retries, self.timeout_s = max_tokens, retries, timeout_s
        self.unreadable = 0
        """Questions to which no answer could be read."""
        self._cache: OrderedDict[str, Edits] = OrderedDict()
        self._pending: dict[str, asyncio.Task[Edits]] = {}
        self._client: AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def edits(self, question: str) -> Edits:
        """The edits that answer ``question``.  Raises :class:`ExpertFailure`."""
        if question in self._cache:
            self._cache.move_to_end(question)
            return self._cache[question]
        client = self._connect()
        if question not in self._pending:
            self._pending[question] = asyncio.create_task(self._ask(client, question))
        return await asyncio.shield(self._pending[question])

    async def close(self) -> None:
        """End the connections."""
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.close()
        self._client = None

    async def _ask(self, client: AsyncOpenAI, question: str) -> Edits:
        from openai import APIStatusError, OpenAIError

        edits = None
        try:
            for attempt in range(self.retries + 1):
                create = client.chat.completions.with_raw_response.create
                answer = await create(
                    model=self.model,
                    messages=[{"role": "user", "content": question}],
                    temperature=self.temperature,
                    max_tokens=self.max_tokens,
                    seed=attempt,
                )
                edits = read_answer(answer.text)
                if edits is not None:
                    break
        except OpenAIError as error:
            reason = error.response.text if isinstance(error, APIStatusError) else str(error)
            reason = reason.replace(client.api_key, "KEY") if self.key_env else reason  # a server may repeat it
            raise ExpertFailure(f"env.expert at {self.url}: {type(error).__name__}: {reason[:300]}") from None
        finally:
            del self._pending[question]
        self.unreadable += edits is None
        self._cache[question] = edits or NOTHING
        if len(self._cache) > CACHED:
            self._cache.popitem(last=False)
        return self._cache[question]

    def _connect(self) -> AsyncOpenAI:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            key = variable("env.expert.key_env", self.key_env) if self.key_env else "none"
            try:
                from openai import AsyncOpenAI
            except ModuleNotFoundError as error:
                raise AbsentError("env.expert needs the openai client: pip install 'troupe-rl[remote]'") from error
            self._client = AsyncOpenAI(base_url=self.url, api_key=key, max_retries=self.retries, timeout=self.timeout_s)
            self._loop, self._pending = loop, {}
        return self._client

    def __copy__(self) -> Expert:
        return self

    def __deepcopy__(self, memo: object) -> Expert:
        return self


def question(problem: str, program: str) -> str:
    """The question about a program."""
    return (
        f"Two agents wrote the program below together for this problem:\n\n{problem.strip()}\n\nOne wrote the "
        "auxiliary function aux, the other the function that the problem asks for, the main function. Propose short "
        "edits to each of them by which the program would pass the problem's tests; where a function is missing, a "
        "minimal correct one; where nothing is to be changed, say so. Answer with JSON alone: "
        '{"aux": "edits or a new function", "main": "edits or a new function"}\n\n'
        f"The program:\n{program or '(none)'}"
    )


def read_answer(text: str) -> Edits | None:
    """The edits in a chat completion; None where there are none."""
    try:
        content = json.loads(text)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return read_edits(content) if isinstance(content, str) else None


def read_edits(text: str) -> Edits | None:
    """The edits in the last JSON object of an answer that has them; None where there is none."""
    decoder, found, place = json.JSONDecoder(), None, text.find("{")
    for _ in range(100):  # objects; text may have any number of brackets
        if place < 0:
            break
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            value, end = None, place + 1
        found = _edits(value) or found
        place = text.find("{", end)
    return found


def _edits(value: Any) -> Edits | None:
    match value:
        case {"aux": str(aux), "main": str(main)}:
            return _clean(aux), _clean(main)
    return None


def _clean(text: str) -> str:
    return text.strip()[:MAX_CHARS].encode("utf-8", "replace").decode("utf-8")

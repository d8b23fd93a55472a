"""The remote engine: a policy behind an OpenAI-compatible server, which is never trained; no answer exceeds a size and
a time, whatever the server sends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from ....errors import AbsentError
from ....experience import Completion, Request
from ...chat_codec import TOOLS, ChatCodec
from ..base import ContextExceededError, EngineClosedError, RequestFailedError, Weightless
from ..lockstep import hold
from ..requests import check_prompt, in_time, label
from .settings import RemoteSettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError


ALWAYS: Final = 4 << 20
"""Bytes that any answer may have."""
PER_TOKEN: Final = 64
"""Bytes more for each token that was asked for: a token has some 4 characters, which JSON may write as 6 bytes each."""
PARTS: Final = 10
"""How many times ``timeout_s`` an answer may take in all."""


class UnusableAnswerError(ValueError):
    """An answer without a completion that can be read; the message says why."""


def most_bytes(body: bytes) -> int:
    """The bytes that the answer to a request with the JSON ``body`` may have."""
    asked = json.loads(body)
    tokens = max(asked.get("max_tokens") or 0, asked.get("max_completion_tokens") or 0)
    return ALWAYS + PER_TOKEN * tokens * (asked.get("n") or 1)


def bounded_client(timeout_s: float, before: Callable[[Any], Awaitable[None]]) -> DefaultAsyncHttpxClient:
    """A client for ``AsyncOpenAI``, which awaits ``before(request)`` ahead of each request, repeated ones too.

    It reads an answer in pieces, up to :func:`most_bytes`, asks for no compression, since a small answer could unfold
    to a huge one, and follows no redirection: a prompt goes to the server that the user has named.

    Sending a request raises :class:`UnusableAnswerError` for an answer that is larger, compressed, or not at its end
    after ``PARTS * timeout_s`` seconds.
    """
    from openai import DefaultAsyncHttpxClient

    class BoundedClient(DefaultAsyncHttpxClient):
        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            await before(request)
            late = asyncio.timeout(PARTS * timeout_s)
            try:
                async with late:
                    return await _whole(
                        await super().send(request, stream=True, **options), most_bytes(request.content)
                    )
            except TimeoutError as error:
                if not late.expired():
                    raise
                raise UnusableAnswerError(f"the answer has no end after {PARTS * timeout_s:g} s") from error

    return BoundedClient(headers={"Accept-Encoding": "identity"}, follow_redirects=False)


async def _whole(response: Any, most: int) -> Any:
    """A copy of ``response`` with its whole body, of ``most`` bytes at most, as UTF-8: a server may name a charset that
    unfolds (``zlib``), or takes long.
    """
    try:
        if (encoding := response.headers.get("content-encoding", "identity").lower()) != "identity":
            raise UnusableAnswerError(f"the answer is compressed ({encoding}), which was not asked for")
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > most:
                raise UnusableAnswerError(f"the answer has more than {most:,} bytes")
    finally:
        await response.aclose()
    return type(response)(
        response.status_code,
        headers={**response.headers, "content-type": "application/json"},
        content=bytes(body),
        request=response.request,
        extensions=response.extensions,
    )


COUNTS = ("requests", "retries", "prompt_tokens", "completion_tokens", "unmetered", "empty")
CONTEXT_EXCEEDED = re.compile(
    r"context[ _](length|size|window)|prompt is too long|max_tokens must be at least 1, got -"
)
"""In the answers of OpenAI, vLLM, SGLang, llama.cpp and Anthropic to a prompt that is too long."""
MAX_QUOTE = 500
"""Characters of a server's answer that an error repeats, at the most."""


class RemoteEngine(Weightless):
    """Chat completions of one policy.  Prompts are those of a :class:`...chat_codec.ChatCodec`.

    A completion is text alone: no token ids and no log-probabilities, so no policy can be trained on it.  A request
    without an answer (429, 5xx, a lost connection, no answer in time) is repeated by the client, with backoff; so is
    one whose answer cannot be read, or is larger than what was asked for (:func:`bounded_client`).  Where an answer
    has too few candidates, the rest is requested again.  The greedy candidates of a request are one completion,
    requested once.

    Lockstep engines begin no round while an answer is awaited, so that their batches do not depend on who was quicker.

    Raises :class:`....errors.AbsentError` where the client or the key is missing.
    """

    def __init__(self, policy: str, settings: RemoteSettings) -> None:
        self.policy, self.settings, self._codec = policy, settings, ChatCodec()
        self._key = settings.key(policy)
        self._client = self._connect()
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._free_at = 0.0
        self._counts: Counter[str] = Counter()
        self._pending: set[asyncio.Future[list[Completion]]] = set()
        self._closed = False

    # ---- the interface ----------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> list[Completion]:
        """See :class:`..base.Engine`.

        Raises ``ValueError`` for another policy and an empty prompt, ``TimeoutError`` past the deadline,
        :class:`..base.RequestFailedError` where the server refuses or stays away (:class:`..base.ContextExceededError`:
        because the prompt is too long, which is no fault), :class:`..base.EngineClosedError`.
        """
        if self._closed:
            raise EngineClosedError("generate() after close()")
        if request.policy != self.policy:
            raise ValueError(f"no policy '{request.policy}' in this engine; it has {self.policy}")
        check_prompt(request, None, self._codec.vocabulary)
        if self._codec.messages(request.prompt_ids)[0]["role"] == TOOLS:
            raise ValueError(f"policy '{self.policy}' is remote, and calls no tools so far: give env.tools=null")
        if request.sampling.top_k:
            raise ValueError(f"{label(request)}: a remote server takes no top_k, got {request.sampling.top_k}")
        with hold():
            answer = asyncio.ensure_future(self._collect(request))
            self._pending.add(answer)
            answer.add_done_callback(self._pending.discard)
            try:
                return await in_time(request, answer)
            except asyncio.CancelledError as error:
                if self._closed:
                    raise EngineClosedError("the engine was closed before the request was served") from error
                raise

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """Raises ``ValueError``: a remote policy is never trained."""
        raise ValueError(f"policy '{policy}' is remote: it is never trained, so it takes no weights")

    async def close(self) -> None:
        """Waiting callers get :class:`..base.EngineClosedError`.  May be called twice."""
        self._closed = True
        for answer in self._pending:
            answer.cancel()
        await self._client.close()

    def drain(self) -> dict[str, float]:
        """The counts since the last call, as ``remote/POLICY/...``: ``requests`` sent, ``retries`` among them, tokens
        as the server bills them, ``unmetered`` answers without a count of tokens, ``empty`` candidates without a word,
        and the ``cost`` where prices are known; and, as ``faults/engine``, the requests that failed after all retries.
        """
        counts, self._counts = self._counts, Counter()
        metrics: dict[str, float] = {name: counts[name] for name in COUNTS}
        if self.settings.prompt_price is not None and self.settings.completion_price is not None:
            spent = self.settings.prompt_price * counts["prompt_tokens"]
            metrics["cost"] = (spent + self.settings.completion_price * counts["completion_tokens"]) / 1e6
        remote = {f"remote/{self.policy}/{name}": count for name, count in metrics.items()}
        return {**remote, "faults/engine": counts["failed"]}

    # ---- asking -----------------------------------------------------------------------------------------------------

    async def _collect(self, request: Request) -> list[Completion]:
        """All candidates, however many answers that takes."""
        is_greedy = request.sampling.temperature == 0
        n, completions, failures = 1 if is_greedy else request.n, list[Completion](), 0
        while len(completions) < n:
            try:
                completions += self._read(await self._post(request, n - len(completions), len(completions)))
            except UnusableAnswerError as error:
                failures += 1
                if failures > self.settings.retries:
                    raise self._failed(str(error), self.settings.retries) from None  # it may repeat the key
                self._counts["retries"] += 1
                await asyncio.sleep(min(0.5 * 2 ** (failures - 1), 8))
        return completions[:n] * (request.n if is_greedy else 1)  # a server may add choices

    async def _post(self, request: Request, n: int, first: int) -> str:
        """The server's answer for candidates ``first`` and on, as text.  Raises :class:`RequestFailedError`."""
        from openai import APIError, Omit, OpenAIError

        sampling, keyless = request.sampling, {} if self._key else {"Authorization": Omit()}
        body: dict[str, Any] = {
            "model": self.settings.model,
            "messages": self._codec.messages(request.prompt_ids),
            "n": n,
            "seed": (request.seed + first) % 2**31,  # some servers keep it in 32 bits
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
        }
        body |= {"stop": list(sampling.stop)} if sampling.stop else {}
        extra = dict(self.settings.extra)
        body = {name: value for name, value in body.items() if name not in extra}
        extra_body = {name: value for name, value in extra.items() if value is not None}
        async with self._slots:
            try:
                create = self._client.chat.completions.with_raw_response.create
                return str((await create(**body, extra_headers=keyless, extra_body=extra_body)).text)
            except OpenAIError as error:
                if _exceeds_context(error):
                    raise ContextExceededError(self._described(_reason(error), 0)) from None  # as below
                retries = _retries(error.request) if isinstance(error, APIError) else 0
                raise self._failed(_reason(error), retries) from None  # a server may repeat the key in its answer

    def _read(self, text: str) -> list[Completion]:
        """The candidates of an answer, at least one.  Raises :class:`UnusableAnswerError`."""
        try:
            reply = json.loads(text)
            usage = reply.get("usage") or {}
            tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
            choices = [(choice["message"].get("content") or "", choice["finish_reason"]) for choice in reply["choices"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UnusableAnswerError(f"the answer is no chat completion: {text}") from error
        match tokens:
            case [int(prompt), int(completion)]:
                self._counts.update(prompt_tokens=prompt, completion_tokens=completion)
            case _:
                self._counts["unmetered"] += 1
        if not choices or not all(isinstance(content, str) for content, _ in choices):
            raise UnusableAnswerError(f"the answer has no choices that can be read: {text}")
        self._counts["empty"] += sum(not content for content, _ in choices)
        return [self._completion(content, reason) for content, reason in choices]

    def _completion(self, content: str, reason: str | None) -> Completion:
        return Completion((), (), content, "length" if reason == "length" else "stop", self.policy, 0)

    # ---- the client -------------------------------------------------------------------------------------------------

    def _connect(self) -> AsyncOpenAI:
        """The client.  Raises :class:`....errors.AbsentError` where it is not installed."""
        check_client(self.policy, self.settings)
        from openai import AsyncOpenAI

        for name in ("openai", "httpx", "httpx2"):  # one line per request would drown all others
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.WARNING)
        return AsyncOpenAI(
            base_url=self.settings.url,
            api_key=self._key or "none",
            max_retries=self.settings.retries,
            timeout=self.settings.timeout_s,
            http_client=bounded_client(self.settings.timeout_s, self._before_request),
        )

    async def _before_request(self, request: Any) -> None:
        """Before each request, repeated ones too: wait for its turn, and count it."""
        if (rate := self.settings.requests_per_minute) is not None:
            now = time.monotonic()
            start = max(now, self._free_at)
            self._free_at = start + 60 / rate
            await asyncio.sleep(start - now)
        self._counts["requests"] += 1
        self._counts["retries"] += _retries(request) > 0

    def _failed(self, reason: str, retries: int) -> RequestFailedError:
        """The error of a request, which is counted."""
        self._counts["failed"] += 1
        return RequestFailedError(self._described(reason, retries))

    def _described(self, reason: str, retries: int) -> str:
        """Policy, url and reason, without the key."""
        text = reason.replace(self._key, "KEY") if self._key else reason
        after = f" (after {retries} retries)" if retries else ""
        return f"policy '{self.policy}' at {self.settings.url}: {text[:MAX_QUOTE]}{after}"


def check_client(policy: str, settings: RemoteSettings) -> None:
    """Raise :class:`....errors.AbsentError` where the client or the key is missing."""
    settings.key(policy)
    try:
        import openai  # noqa: F401
    except ModuleNotFoundError as error:
        raise AbsentError(
            f"policies.{policy}.tuning=remote needs the openai client: pip install 'troupe-rl[remote]'"
        ) from error


def _exceeds_context(error: OpenAIError) -> bool:
    """Whether a server refuses a prompt for its length."""
    from openai import APIStatusError

    if not isinstance(error, APIStatusError) or error.status_code not in (400, 413, 422):
        return False
    return error.status_code == 413 or CONTEXT_EXCEEDED.search(error.response.text) is not None


def _reason(error: OpenAIError) -> str:
    """The server's answer, or why there is none."""
    from openai import APIStatusError

    if isinstance(error, APIStatusError):
        return f"HTTP {error.status_code}: {error.response.text.strip()}"
    return f"{error} {error.__cause__ or ''}".strip()


def _retries(request: Any) -> int:
    """How often the client has sent this request before."""
    return int(request.headers.get("x-stainless-retry-count", 0))

"""The HTTP client of the remote engine: no answer exceeds a size and a time, whatever the server sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from openai import DefaultAsyncHttpxClient

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

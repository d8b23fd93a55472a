"""What every engine does with a request: check it, sort it, and await its completions until its deadline; and seeds
that depend on what is sampled, never on when or where.
"""

from __future__ import annotations

import asyncio
import time
from hashlib import blake2b
from typing import TypeVar

from ...experience import Request

T = TypeVar("T")


def label(request: Request) -> str:
    """How errors name it."""
    return f"policy '{request.policy}', request {request.key}"


def check_prompt(request: Request, context: int | None, vocabulary: int) -> None:
    """Raise ``ValueError`` for an empty prompt, one that ``context`` tokens (None: no bound) cannot hold together with
    ``max_tokens``, and a token outside of the ``vocabulary``.
    """
    length, new = len(request.prompt_ids), request.sampling.max_tokens
    if not length:
        raise ValueError(f"{label(request)}: the prompt is empty")
    if context is not None and length + new > context:
        raise ValueError(
            f"{label(request)}: a prompt of {length} tokens and max_tokens = {new} exceed the context of {context} "
            "tokens"
        )
    if not 0 <= min(request.prompt_ids) <= max(request.prompt_ids) < vocabulary:
        raise ValueError(f"{label(request)}: a prompt token is outside of the vocabulary of {vocabulary}")


def order(request: Request) -> tuple[object, ...]:
    """A sort key: the request's key, whatever the types of its parts, then its policy, seed and prompt."""
    key = tuple((type(part).__name__, part) for part in request.key)
    return key, request.policy, request.seed, request.prompt_ids


async def in_time(request: Request, answer: asyncio.Future[T]) -> T:
    """``answer``.  Raises ``TimeoutError`` past the request's deadline."""
    if request.deadline is None:
        return await answer
    try:
        async with asyncio.timeout(request.deadline - time.monotonic()):
            return await answer
    except TimeoutError as error:
        raise TimeoutError(f"{label(request)}: the deadline has passed") from error


def derive(*parts: int | str) -> int:
    """A 63-bit seed from (run, iteration, task, agent, turn, node, ...)."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

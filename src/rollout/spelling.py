"""The text of each token of a completion, also of one that is being written: pieces that join to its text.

A token that ends within a character has no text; the one that completes it has the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from ..experience import Completion


def spelled(tokenizer: Tokenizer, completion: Completion, begin: str) -> tuple[tuple[str, float], ...]:
    """The tokens of ``completion``, each with its log-probability; the first has the given words ``begin``, too."""
    stream = DecodeStream(skip_special_tokens=True)
    texts = [stream.step(tokenizer, token) or "" for token in completion.token_ids]
    return tuple(zip([begin + texts[0], *texts[1:]], completion.logprobs, strict=True)) if texts else ()


def telling(
    tokenizer: Tokenizer, listener: Callable[[int, str, float], None], begin: str
) -> Callable[[int, int, float], None]:
    """For :attr:`..experience.Request.on_token`: tells ``listener``, in this event loop, whose tokenizer it is."""
    loop, stream = asyncio.get_running_loop(), DecodeStream(skip_special_tokens=True)

    def tell(place: int, token: int, logprob: float) -> None:
        nonlocal stream
        if not place:
            stream = DecodeStream(skip_special_tokens=True)
        text = stream.step(tokenizer, token) or ""
        listener(place, text if place else begin + text, logprob)

    def on_token(place: int, token: int, logprob: float) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, place, token, logprob)

    return on_token

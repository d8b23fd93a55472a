"""What was started is closed where a later step of the build fails."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol


class Closable(Protocol):
    """An engine, a pool, a team, a sampler."""

    async def close(self) -> None: ...


def close_now(part: Closable) -> None:
    """Close ``part``, on an event loop of its own: there may be one that is running (a notebook), or none."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, part.close()).result()

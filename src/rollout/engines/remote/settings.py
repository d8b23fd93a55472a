"""``policies.NAME.remote``: which server speaks for a policy, and how it is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ....errors import AbsentError

OWN = ("model", "messages", "stream", "n", "seed", "temperature", "top_p", "max_tokens", "stop")
"""What ``extra`` may not say, since the engine does; the first three it may not even leave out."""


@dataclass(frozen=True)
class RemoteSettings:
    """``policies.NAME.remote``: which model of which server speaks, and how it is asked.

    ``url`` ends before ``/chat/completions``; ``key_env`` names an environment variable that holds the key (None: none
    is sent).  At most ``concurrency`` requests are under way, and no more than ``requests_per_minute`` begin, repeated
    ones included (None: no limit).  A request waits ``timeout_s`` for each part of an answer and is repeated up to
    ``retries`` times.  Prices are of a million tokens, in any currency (None: unknown).  ``extra`` is sent along, for
    what one server knows beyond the interface; what is None in it is not sent at all, for what a server refuses to hear
    (``max_tokens``, ``seed``).  Raises ``ValueError`` naming the key.
    """

    url: str
    model: str
    key_env: str | None = None
    concurrency: int = 16
    requests_per_minute: float | None = None
    retries: int = 6
    timeout_s: float = 120.0
    prompt_price: float | None = None
    completion_price: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        place = urlsplit(str(self.url))
        if place.username or place.password:
            raise ValueError("url holds a user or a password, which config.yaml would keep: use key_env")
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"url must be http://... or https://..., got {self.url!r}")
        for name, least in (("concurrency", 1), ("retries", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        for name in ("timeout_s", "requests_per_minute"):
            value = getattr(self, name)
            if not (value is None and name == "requests_per_minute") and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value!r}")
        prices = [self.prompt_price, self.completion_price]
        if (None in prices and prices != [None, None]) or any(price is not None and price < 0 for price in prices):
            raise ValueError(f"prompt_price and completion_price: two numbers of at least 0 or none, got {prices}")
        if not isinstance(self.extra, Mapping):
            raise ValueError(f"extra must hold keys, got {self.extra!r}")
        for name, value in self.extra.items():
            if name in OWN[:3] or (name in OWN and value is not None):
                raise ValueError(f"extra.{name}: Troupe sends {name} itself")

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the words; the other keys only say how they are fetched."""
        return {"url": self.url, "model": self.model, "extra": dict(self.extra)}

    def key(self, policy: str) -> str | None:
        """The key, where one is named.  Raises :class:`AbsentError` where the environment does not hold it."""
        if self.key_env is None:
            return None
        if not (key := os.environ.get(self.key_env)):
            raise AbsentError(
                f"policies.{policy}.remote.key_env={self.key_env}: the environment holds no such variable"
            )
        return key

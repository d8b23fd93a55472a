"""``policies.NAME.remote``: the server of a policy, how it is called, and the secrets that its settings must not hold,
since a run writes them to files and loggers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ....errors import AboveZero, Natural, Positive, check_fields, check_variable, variable

_NAMES = re.compile(
    r"(^|_)(api_?key|key|access_?key|secret|secret_?key|private_?key|password|passwd|passphrase|credentials?|auth|"
    r"authorization|bearer|cookie|x_api_key|(api|access|auth|id|refresh|session|bearer)_?token|token|jwt)$",
    re.IGNORECASE,
)
"""Names of keys whose text is a secret; ``stop_token_ids`` and ``prompt_cache_key`` have other words or no secret."""
_HARMLESS = {"prompt_cache_key"}
_VALUES = re.compile(
    r"(Bearer|Basic) \S+|(sk|pk|rk|hf|gsk|xai|nvapi|ghp|gho|glpat|pplx|r8)[-_][\w-]{16,}|AIza[\w-]{30,}|AKIA\w{16}|"
    r"eyJ[\w-]+\.[\w-]+\.[\w-]+",
    re.ASCII,
)
"""Texts in the forms in which vendors write their keys."""
_SHORTEST = 8
"""Characters of a secret in the environment; shorter values may stand anywhere by chance."""


def secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    """The keys, with dots, of the texts in ``settings`` that look like secrets.

    Such are texts under a secret's name, in the form of a vendor's key, or equal to a variable of the environment with
    a secret's name (which ``${oc.env:NAME}`` inserts).
    """
    known = {value for name, value in os.environ.items() if _is_secret_name(name) and len(value) >= _SHORTEST}
    pending: list[tuple[str, str, Any]] = [(str(key), str(key), value) for key, value in settings.items()]
    while pending:
        path, name, value = pending.pop()
        if isinstance(value, Mapping):
            pending += [(f"{path}.{key}", str(key), inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            pending += [(f"{path}.{index}", name, inner) for index, inner in enumerate(value)]
        elif (
            isinstance(value, str)
            and value
            and (_is_secret_name(name) or _VALUES.search(value) or any(each in value for each in known))
        ):
            yield path


def _is_secret_name(name: str) -> bool:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|-", "_", name)
    return words not in _HARMLESS and _NAMES.search(words) is not None


OWN = ("model", "messages", "stream", "n", "seed", "temperature", "top_p", "max_tokens", "stop")
"""Keys that ``extra`` may not set, since the engine does; the first three it may not even leave out."""


@dataclass(frozen=True)
class RemoteSettings:
    """``policies.NAME.remote``.  Raises ``ValueError``, naming the key, for a value out of range."""

    url: str
    """Of the server, up to and without ``/chat/completions``."""
    model: str
    """The server's name of the model."""
    key_env: str | None = None
    """Environment variable that holds the key; None: none is sent."""
    concurrency: Positive = 16
    """Requests under way at the same time, at the most."""
    requests_per_minute: AboveZero | None = None
    """Requests that begin per minute at the most, repeated ones included; None: no limit."""
    retries: Natural = 6
    """How often a request is repeated, at the most."""
    timeout_s: AboveZero = 120.0
    """Seconds to wait for each part of an answer, which may take ten times as long in all."""
    prompt_price: float | None = None
    """Of a million tokens, in any currency; None: unknown."""
    completion_price: float | None = None
    """As ``prompt_price``."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Sent along, for options that one server has beyond the interface.  A key with None is not sent at all, for one
    that a server refuses (``max_tokens``, ``seed``)."""

    def __post_init__(self) -> None:
        place = urlsplit(str(self.url))
        if place.username or place.password:
            raise ValueError("url holds a user or a password, which config.yaml would keep: use key_env")
        if place.query or place.fragment:
            raise ValueError("url holds a query, which no request would have and config.yaml would keep: use key_env")
        if any(secrets({"url": str(self.url)})):
            raise ValueError("url holds a secret, which config.yaml and loggers would keep: use key_env")
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"url must be http://... or https://..., got {self.url!r}")
        check_variable("key_env", self.key_env)
        if any(secrets({"key_env": self.key_env})):
            raise ValueError("key_env holds a secret, and not the name of the environment variable that has it")
        check_fields(self)
        prices = [self.prompt_price, self.completion_price]
        if (None in prices and prices != [None, None]) or any(price is not None and price < 0 for price in prices):
            raise ValueError(f"prompt_price and completion_price: two numbers of at least 0 or none, got {prices}")
        if not isinstance(self.extra, Mapping):
            raise ValueError(f"extra must hold keys, got {self.extra!r}")
        for name, value in self.extra.items():
            if name in OWN[:3] or (name in OWN and value is not None):
                raise ValueError(f"extra.{name}: Troupe sends {name} itself")
        for path in secrets(self.extra):
            raise ValueError(f"extra.{path} holds a secret, which config.yaml and loggers would keep: use key_env")

    @property
    def identity(self) -> dict[str, Any]:
        """The keys that decide the completions; the others only say how to get them."""
        return {"url": self.url, "model": self.model, "extra": dict(self.extra)}

    def key(self, policy: str) -> str | None:
        """The key, where one is named.  Raises :class:`AbsentError` where the environment does not hold it."""
        return None if self.key_env is None else variable(f"policies.{policy}.remote.key_env", self.key_env)

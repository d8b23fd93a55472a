"""What a workflow is given to speak with its agents, and what it returns."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import AbsentError
from ...gateway.protocol import ChatReply
from ..returned import checked_info, finite

if TYPE_CHECKING:
    from openai import AsyncOpenAI


RESERVED = {"malformed_calls", "refused_requests", "too_many_calls", "unmatched_messages"}
"""Numbers that the world itself has of a message: none of a workflow has their names."""


def finite_info(info: Any) -> dict[str, float]:
    """``info`` as numbers by name.  Raises ``TypeError`` for other values, and for a name that is taken."""
    return checked_info(info, RESERVED)


@dataclass(frozen=True)
class WorkflowResult:
    """How a run of a workflow ended.

    ``team`` is added to the team reward of the last message; ``success`` None: where ``team`` is at least
    ``env.success_at``.  ``info`` holds finite numbers for the metrics.
    """

    team: float
    success: bool | None = None
    info: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any) -> WorkflowResult:
        """``value`` as a workflow returns it: a result, or a number.  Raises ``TypeError``."""
        result = cls(value) if isinstance(value, int | float) else value
        if not isinstance(result, WorkflowResult):
            raise TypeError(f"a workflow returns its reward, a number, or a WorkflowResult; got {value!r}")
        return replace(result, team=finite("a workflow's reward", result.team), info=finite_info(result.info))


@dataclass(frozen=True)
class AgentClient:
    """An agent, as an OpenAI-compatible server offers it.

    ``settings`` are the arguments that most frameworks take: ``ChatOpenAI(**client.settings)``.
    """

    model: str
    base_url: str
    api_key: str = field(repr=False)
    reward: Callable[..., None] = field(repr=False, compare=False)
    """``reward(local=0.0, team=0.0, **info)``: of the agent's last message, before the next call of any agent;
    ``info`` are finite numbers for the metrics.  Raises ``TypeError`` for others, ``RuntimeError`` at another time."""
    ask: Callable[[Mapping[str, Any]], Awaitable[ChatReply]] = field(repr=False, compare=False)
    """Of the keys of a request, the reply, without HTTP."""
    opened: list[AsyncOpenAI] = field(repr=False, compare=False, default_factory=list)

    @property
    def settings(self) -> dict[str, str]:
        return {"model": self.model, "base_url": self.base_url, "api_key": self.api_key}

    async def chat(self, messages: Sequence[Mapping[str, Any]], **keys: Any) -> dict[str, Any]:
        """The reply to ``messages``, a message in OpenAI's form, asked for in this process: for programs that need no
        client of a framework, at a small part of its cost.  ``keys`` are others of a request, such as ``tools``.

        Raises :class:`...gateway.guard.RefusedError` for a request that the server would refuse.
        """
        return (await self.ask({"model": self.model, "messages": list(messages), **keys})).message

    def openai(self) -> AsyncOpenAI:
        """OpenAI's own client, closed when the workflow ends.  Raises :class:`AbsentError` without the package.

        It has a connection while it waits for a reply alone: those of many clients in many episodes would need more
        files than a process may open, and one that stays belongs to an event loop, which may end before the client.
        """
        try:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient
        except ImportError as error:
            raise AbsentError("the client of agents needs openai: pip install 'troupe-rl[gateway]'") from error
        # A context of its own would read all certificates anew for each client, 40 ms, and there is no TLS here.
        # The server is on this machine, where no proxy of the environment leads.
        http = DefaultAsyncHttpxClient(verify=_context(), trust_env=False)
        client = AsyncOpenAI(
            base_url=self.base_url,
            api_key=self.api_key,
            http_client=http,
            timeout=None,
            default_headers={"connection": "close"},
        )
        self.opened.append(client)
        return client

    async def close(self) -> None:
        """Close what :meth:`openai` opened."""
        while self.opened:
            with suppress(RuntimeError):  # a stream was not read to its end, and its event loop has ended
                await self.opened.pop().close()


ClientForAgent = Callable[[str], AgentClient]
"""``client_for_agent(agent)``: of an agent of the team, by its name."""


@cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()

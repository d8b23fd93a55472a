"""A harness of verifiers in its own process: a conversation with tools, until a message calls none.

Verifiers' ``null`` does the same in a program that ``uv`` first installs from the network for each runtime.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import verifiers.v1 as vf
from openai import AsyncOpenAI
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

__all__ = ["TroupeChat"]


class TroupeChatConfig(vf.HarnessConfig):
    """That of every harness."""


class TroupeChat(vf.Harness[TroupeChatConfig]):
    """Calls of tools go to the task's MCP servers; what cannot be called is told to the model."""

    APPENDS_SYSTEM_PROMPT: ClassVar[bool] = True
    SUPPORTS_MCP: ClassVar[bool] = True
    SUPPORTS_RESUME: ClassVar[bool] = True
    EXECUTES_CODE: ClassVar[bool] = False
    NEEDS_CONTAINER: ClassVar[bool] = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(data)
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        async with (
            AsyncExitStack() as stack,
            AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None, max_retries=0) as client,
        ):
            tools, dispatch, connections = await connect_mcp({"mcpServers": servers}, stack)
            offer: dict[str, Any] = {"tools": tools} if tools else {}
            while trace.stop_condition is None:
                reply = await client.chat.completions.create(model=ctx.model, messages=messages, **offer)
                message = reply.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                for call in message.tool_calls or ():
                    function = call.function  # of functions alone
                    result = await _called(connections, dispatch, function.name, function.arguments)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
                if not message.tool_calls:
                    break
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


async def _called(connections: Any, dispatch: dict[str, Any], name: str, arguments: str) -> Any:
    """What the call gave; an error that the model made is its result."""
    try:
        keys = json.loads(arguments or "{}")
    except ValueError as error:
        return f"error: the arguments are no JSON: {error}"
    if not isinstance(keys, dict) or name not in dispatch:
        return f"error: there is no tool {name}" if isinstance(keys, dict) else "error: arguments must be an object"
    return await call_mcp(connections, dispatch, name, keys)

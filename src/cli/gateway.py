"""Serve the agents of a trained team to programs of any framework; every call is recorded."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, TextIO, get_args

from omegaconf import DictConfig

from ..envs.tool_calls import ToolFormat
from ..envs.workflow.messages import Identity, identity, listener, offer, prompt, reply, unmatched
from ..errors import AbsentError, ConfigError, unwritten
from ..evaluation.assignment import ScriptedPolicy
from ..evaluation.episodes import PolicyActor
from ..experience import Completion
from ..gateway.guard import RefusedError
from ..gateway.protocol import ChatReply, ChatRequest, Draft, check_scored
from ..gateway.server import Server, guarded
from ..rollout.engines.base import EngineError
from ..rollout.engines.requests import derive
from ..rollout.policy_client import PolicyClient, PromptError, PromptTooLongError
from ..setup.checks import set_threads
from ..setup.evaluation import TeamSource, trained_team
from ..setup.evaluation_actors import ActorFactory
from ..setup.parts import plain
from .serve import Access

REMEMBERED = 4096
"""Episodes whose earlier completions are known, at most; of more, those that were asked longest ago are forgotten."""
CALLS = 256
"""Earlier completions of an agent in an episode, and messages as they were sent, that are known at most."""
STRANGERS = ("unknown_host", "unknown_origin", "invalid_api_key", "unknown_path")
"""Refusals that a caller without the key can have: counted and not recorded, or anybody could fill the file."""


@dataclass
class History:
    """What was said last in an episode: by agent, its completions, and its messages as they were sent."""

    calls: int = 0
    completions: dict[str, deque[Completion]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=CALLS)))
    sent: OrderedDict[Identity, str] = field(default_factory=OrderedDict)

    def add(self, agent: str, completion: Completion, answer: ChatReply) -> None:
        """``completion`` of ``agent``, which was sent as ``answer``."""
        self.completions[agent].append(completion)
        said = identity(answer)
        self.sent[said] = completion.text
        self.sent.move_to_end(said)
        if len(self.sent) > CALLS:
            self.sent.popitem(last=False)


class TrainedAgents:
    """Answers calls with the policies of ``clients``, and appends each to ``record``.

    Where that fails, ``failure`` has the error, ``end`` is called, and all further calls are refused.
    """

    def __init__(
        self,
        clients: Mapping[str, PolicyClient],
        seed: int,
        format: ToolFormat | None,
        record: TextIO | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._clients, self._seed, self._format, self._record, self._end = dict(clients), seed, format, record, end
        self.failure: OSError | None = None
        self._thread = ThreadPoolExecutor(1, "prompts")
        self._histories: OrderedDict[str, History] = OrderedDict()
        self._number = 0
        self.refusals: Counter[tuple[str, str]] = Counter()
        """Refused requests, by the agent that they name and the code of the error."""

    def agents(self, episode: str | None) -> Sequence[str]:
        return list(self._clients)

    def refused(self, episode: str | None, model: Any, code: str) -> None:
        agent = model if isinstance(model, str) and model in self._clients else None
        self.refusals[agent or "no agent", code] += 1
        if code not in STRANGERS:
            self._write({"episode": episode, "agent": agent, "refused": code})

    async def answer(self, episode: str | None, request: ChatRequest, draft: Draft) -> ChatReply:
        self._check_record()
        if request.tools and self._format is None:
            message = "tools: the gateway was started without tools=hermes or tools=llama"
            raise RefusedError(HTTPStatus.BAD_REQUEST, message, "invalid_value", "tools")
        client, history = self._clients[request.agent], self._history(episode)
        check_scored(request, [request.agent] if client.unscored else [])
        number, history.calls, said = history.calls, history.calls + 1, tuple(history.completions[request.agent])
        messages = prompt(request.messages, history.sent, self._format)
        changed = unmatched(request.messages, history.sent)
        place = f"episode {episode}"
        try:
            # In a thread: the server answers others in the meantime.  In one, since a tokenizer is not for two.
            written = await asyncio.get_running_loop().run_in_executor(
                self._thread, client.chat_prompt, request.agent, place, messages, offer(request, self._format), said
            )
        except PromptError as error:
            code = "context_length_exceeded" if isinstance(error, PromptTooLongError) else "invalid_prompt"
            raise RefusedError(HTTPStatus.BAD_REQUEST, str(error), code, "messages") from error
        self._number += 1
        key = (episode, number) if episode is not None else ("", self._number)
        seed = derive(self._seed, *key, request.agent)
        try:
            hear = listener(draft.write, request, self._format) if request.stream else None
            (completion,) = await client.generate(written.ids, 1, seed, key, hear)
        except EngineError as error:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error), "engine_failed") from error
        text = client.told(completion, len(written.ids), request.stream or request.logprobs)
        answer, _ = reply(text, request, self._format, number)
        history.add(request.agent, completion, answer)
        self._write(
            {"episode": episode, "call": number, "agent": request.agent, "session": request.session}
            | {"seed": seed, "messages": messages}
            | {"prompt_ids": written.ids, "retokenised": written.retokenised, "unmatched": changed}
            | asdict(completion)
        )
        self._check_record()
        return answer

    def _history(self, episode: str | None) -> History:
        """Of a call without an episode, one of its own."""
        if episode is None:
            return History()
        history = self._histories.setdefault(episode, History())
        self._histories.move_to_end(episode)
        if len(self._histories) > REMEMBERED:
            self._histories.popitem(last=False)
        return history

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._record is None or self.failure is not None:
            return
        try:
            self._record.write(json.dumps(line) + "\n")
            self._record.flush()
        except OSError as error:
            self.failure = unwritten(error, Path(self._record.name))
            with suppress(OSError):  # it would write once more
                self._record.close()
            self._end()

    def _check_record(self) -> None:
        if self.failure is not None:
            message = "the gateway ends, since its record of calls cannot be written"
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, message, "record_failed")


def clients_of(team: TeamSource, checkpoint: str | None, factory: ActorFactory) -> dict[str, PolicyClient]:
    """By agent, the client of its policy.  Raises :class:`ConfigError`."""
    checkpoint = checkpoint or team.default_checkpoint
    sources = {agent: team.policy("run", agent, checkpoint) for agent in team.config["team"]}
    for agent, source in sources.items():
        if isinstance(source, ScriptedPolicy):
            raise ConfigError(f"agent '{agent}' has a scripted policy, which speaks only in its own world")
    actors = factory.team(sources, "own")
    return {agent: actor.client for agent, actor in actors.items() if isinstance(actor, PolicyActor)}


def gateway(keys: Mapping[str, Any], until: threading.Event) -> None:
    """Serve until the event is set.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong, and ``OSError`` once the record cannot be
    written.
    """
    if keys["run"] is None:
        raise ConfigError("run is missing: give run=DIR, a run directory")
    if type(keys["port"]) is not int or not 0 <= keys["port"] < 1 << 16:
        raise ConfigError(f"port must be a whole number below 65536, got {keys['port']!r}")
    if keys["tools"] not in (None, *get_args(ToolFormat)):
        raise ConfigError(f"tools must be null or one of {', '.join(get_args(ToolFormat))}, got {keys['tools']!r}")
    if not isinstance(keys["record"], str | None):
        raise ConfigError(f"record must be null or a file, got {keys['record']!r}")
    access = Access.read(keys)
    team = trained_team("run", keys["run"], None)
    set_threads(keys["threads"], team.config["threads"])
    engine = dict(team.config["engine"])
    factory = ActorFactory(engine | ({"lockstep": False} if "lockstep" in engine else {}))  # nobody waits for others
    with _opened(keys["record"]) as record:
        try:
            clients = clients_of(team, keys["checkpoint"], factory)
            agents = TrainedAgents(clients, keys["seed"], keys["tools"], record, until.set)
            server = _server(agents, access, keys)
            try:
                for agent in agents.agents(None):
                    print(f"{agent}: {server.url}/episodes/NAME/v1, model {agent}", flush=True)
                print("with a key" if access.key else "without a key", "as", ", ".join(access.guard.hosts), flush=True)
                print("Ctrl-C ends it", flush=True)
                until.wait()
            finally:
                server.close()
            for (who, code), count in sorted(agents.refusals.items()):
                print(f"refused: {count} of {who} ({code})", flush=True)
            if agents.failure is not None:
                raise agents.failure
        finally:
            asyncio.run(factory.close())


def _opened(place: str | None) -> AbstractContextManager[TextIO | None]:
    try:
        return nullcontext() if place is None else Path(place).open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"record={place} cannot be written: {error}") from error


def _server(agents: TrainedAgents, access: Access, keys: Mapping[str, Any]) -> Server:
    try:
        return Server(guarded(agents, access.guard, access.key), keys["host"], keys["port"])
    except ImportError as error:
        raise AbsentError("the gateway needs uvicorn: pip install 'troupe-rl[gateway]'") from error
    except OSError as error:
        raise ConfigError(f"port={keys['port']}: nothing can listen there on host={keys['host']}: {error}") from error


def run_command(cfg: DictConfig) -> None:
    """``troupe gateway``, with the configuration that Hydra has composed."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    gateway(plain(cfg), ended)
    sys.exit(os.EX_OK)

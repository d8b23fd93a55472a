"""Serve a trained team: vLLM's OpenAI-compatible server, one process per base model."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from omegaconf import DictConfig

from ..errors import ConfigError, check_whole, number_of
from ..evaluation.assignment import LocalPolicy
from ..gateway.guard import KEY_ENV, LOCAL, Guard, GuardSettings
from ..models.bases.base_models import resolve
from ..models.bases.loading import load_tokenizer
from ..models.bases.reading import adapter_rank
from ..rollout.chat_template import check_chat, is_raw, prefill, try_prompts
from ..rollout.engines.base import EngineError
from ..rollout.engines.vllm.launch import EXECUTOR, EXTENSION, environment
from ..rollout.engines.vllm.settings import GIB, VllmSettings, buffer_width
from ..rollout.engines.vllm.signals import end_with
from ..rollout.engines.vllm.versions import check_version
from ..setup.evaluation import TeamSource, trained_team
from ..setup.instantiation import call
from ..setup.parts import plain

GUARD = f"{Guard.__module__}.{Guard.__name__}"
SHORTEST_KEY = 16
"""Characters of a key, at least."""
GRACE_S = 20.0
"""How long a server may take to end by itself."""


@dataclass
class Serving:
    """One server: ``model`` is a folder or hub name, answering to ``names``; ``adapters`` are name -> folder.

    ``chat`` has the arguments of its chat template, where a request does not give others.
    """

    model: str
    port: int
    names: list[str] = field(default_factory=list)
    adapters: dict[str, str] = field(default_factory=dict)
    chat: dict[str, Any] = field(default_factory=dict)

    @property
    def policies(self) -> list[str]:
        return [*self.names, *self.adapters]


def servings(team: TeamSource, checkpoint: str | None, port: int) -> list[Serving]:
    """The servers that a team needs; remote policies have theirs already, and scripted ones need none.

    Raises :class:`ConfigError` where ``checkpoint`` is not there.
    """
    checkpoint = checkpoint or team.default_checkpoint
    plan: dict[str, Serving] = {}  # by model and chat: a server has one template
    for agent, name in team.config["team"].items():
        policy = team.policy("run", agent, checkpoint)
        if not isinstance(policy, LocalPolicy):
            continue
        model, chat = resolve(policy.base_model or policy.weights), dict(policy.chat)
        if is_raw(chat):
            raise ConfigError(f"policies.{name}.prompts=raw: a server takes chats, which need a chat template")
        if prefill(chat):
            raise ConfigError(f"policies.{name}.chat.prefill: what the answers of a server begin with, its clients say")
        if model.startswith("-"):  # it becomes a word of vLLM's command line
            raise ConfigError(f"policies.{name}.base={model} is neither a folder nor a name on the hub")
        serving = plan.setdefault(f"{model} {json.dumps(chat)}", Serving(model, port + len(plan), chat=chat))
        if name not in serving.policies:
            if policy.base_model is None:
                serving.names.append(name)
            else:
                serving.adapters[name] = policy.weights
    return list(plan.values())


def check_templates(plan: Sequence[Serving]) -> None:
    """Raise ``ValueError`` for a chat template or a tokenizer that is of no use: vLLM has no limits for them."""
    for serving in plan:
        key = f"policies.{serving.policies[0]}"
        try:
            tokenizer = load_tokenizer(serving.model)
        except (OSError, ValueError) as error:  # missing, or damaged
            raise ConfigError(f"{key}.base={serving.model} cannot be loaded: {error}") from error
        check_chat(key, tokenizer, serving.chat)
        try_prompts(key, tokenizer, serving.chat)


def check_addresses(plan: Sequence[Serving], host: str) -> None:
    """Raise :class:`ConfigError` for a port that is no number or taken: whoever has it would answer for the server."""
    for serving in plan:
        port = f"port={serving.port}, of {', '.join(serving.policies)}"
        if not 0 < serving.port < 1 << 16:
            raise ConfigError(f"{port}: a port is between 1 and 65535")
        try:
            [(family, *_, address), *_] = socket.getaddrinfo(host, serving.port, type=socket.SOCK_STREAM)
            socket.create_server(address, family=family).close()
        except OSError as error:
            raise ConfigError(f"{port}: nothing can listen there on host={host}: {error}") from error


@dataclass(frozen=True)
class Access:
    """Who may ask: those with the ``key``, where there is one, within the bounds of ``guard``."""

    guard: GuardSettings
    key: str | None = field(repr=False)

    @classmethod
    def read(cls, keys: Mapping[str, Any]) -> Access:
        """The keys ``host``, ``hosts``, ``api_key_file``, ``public_without_key`` and ``max_...``, and the environment's
        key.  Raises :class:`ConfigError` for a key that is too short to be one, and for an address that others reach
        without a key.
        """
        key, host, hosts = _api_key(keys["api_key_file"]), str(keys["host"]), keys["hosts"]
        if not isinstance(hosts, list) or not all(isinstance(name, str) and name for name in hosts):
            raise ConfigError(f"hosts must be a list of names, hosts=[NAME,...], got {hosts!r}")
        for name in ("max_requests", "max_body_bytes", "max_choices"):
            call(name, check_whole, name, keys[name], 1)
        addresses = _addresses(host)
        if (
            key is None
            and not all(address.is_loopback for address in addresses)
            and keys["public_without_key"] is not True
        ):
            raise ConfigError(
                f"host={host}: everybody who reaches this machine could use the server; set {KEY_ENV} to a key, or "
                "give api_key_file=FILE, or public_without_key=true where that is meant"
            )
        any_address = any(address.is_unspecified for address in addresses)
        own = {host, *map(str, addresses), *([socket.gethostname(), socket.getfqdn()] if any_address else [])}
        limits = {name: keys[name] for name in ("max_requests", "max_body_bytes", "max_choices")}
        names = dict.fromkeys(name.lower().strip("[]").rstrip(".") for name in (*LOCAL, *sorted(own), *hosts))
        return cls(GuardSettings(tuple(names), any_address, **limits), key)

    @property
    def environment(self) -> dict[str, str]:
        """What a server's process needs to know; not on its command line, which every user of the machine can read."""
        return self.guard.environment() | {KEY_ENV: self.key or ""}


def _api_key(file: str | None) -> str | None:
    """The key in ``file``, or in the environment."""
    source = f"api_key_file={file}" if file else KEY_ENV
    try:
        key = Path(file).read_text(encoding="utf-8").strip() if file else os.environ.get(KEY_ENV)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source} cannot be read: {error}") from error
    if key is None:
        return None
    if len(key) < SHORTEST_KEY or not re.fullmatch(r"[!-~]+", key):
        raise ConfigError(f"{source}: a key is {SHORTEST_KEY} or more letters, digits and signs, without blanks")
    return key


def _addresses(host: str) -> list[IPv4Address | IPv6Address]:
    """Of ``host``.  Raises :class:`ConfigError`."""
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise ConfigError(f"host={host}: nothing can listen there: {error}") from error
    return [ip_address(address.partition("%")[0]) for address in sorted(found)]


def address(host: str, port: int) -> str:
    """``http://HOST:PORT``."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def command(serving: Serving, host: str, settings: VllmSettings) -> list[str]:
    """The command line that starts vLLM's server."""
    # vLLM's ``serve`` command asks for a package called vllm, which a CPU build is not; it runs this module.
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", serving.model, "--host", host]
    words += ["--port", str(serving.port), "--served-model-name", *(serving.names or ["base"])]
    words += ["--dtype", settings.dtype, "--kv-cache-memory-bytes", str(int(settings.kv_cache_gib * GIB))]
    words += ["--block-size", str(settings.block_size), "--max-num-seqs", str(settings.max_batch_rows)]
    compilation = settings.compilation(gpu=torch.cuda.is_available())
    words += [
        "--enforce-eager" if compilation["enforce_eager"] else "--no-enforce-eager",
        "--generation-config",
        "vllm",
    ]
    if "compilation_config" in compilation:
        words += ["--compilation-config", json.dumps(compilation["compilation_config"])]
    words += ["--logprobs-mode", "processed_logprobs", "--load-format", "safetensors", "--middleware", GUARD]
    # So that the server's engine ends with it, all of it.
    words += ["--worker-extension-cls", EXTENSION, "--distributed-executor-backend", EXECUTOR]
    if serving.chat:
        words += ["--default-chat-template-kwargs", json.dumps(serving.chat)]
    if serving.adapters:
        rank = max(adapter_rank(Path(folder)) for folder in serving.adapters.values())
        slots = len(serving.adapters) + 1  # one stays empty for what has no adapter: see ExpectedWeights.lora_arguments
        room = buffer_width(", ".join(serving.adapters), rank)
        words += ["--enable-lora", "--max-loras", str(slots), "--max-lora-rank", str(room)]
        words += ["--lora-modules", *(f"{name}={folder}" for name, folder in serving.adapters.items())]
    return words


@contextmanager
def running(
    plan: Sequence[Serving], host: str, settings: VllmSettings, access: Access
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The servers' processes.  Neither they nor their children outlive the context, or this process if it is killed."""
    kin = partial(end_with, os.getpid())
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with environment(settings):
            for serving in plan:  # each a group of its own: a Ctrl-C is for this process, which then ends them all
                words = command(serving, host, settings)
                own = {**os.environ, **access.environment}
                processes.append(subprocess.Popen(words, start_new_session=True, preexec_fn=kin, env=own))
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + GRACE_S
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            with suppress(ProcessLookupError):  # whatever it has left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def await_all(plan: Sequence[Serving], host: str, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Return once every server answers.  Raises :class:`EngineError` naming the policies of one that has ended."""
    waiting = list(plan)
    while waiting:
        check(plan, processes)
        waiting = [serving for serving in waiting if not _answers(f"{address(host, serving.port)}/health")]
        time.sleep(0.2)


def check(plan: Sequence[Serving], processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Raise :class:`EngineError` naming the policies of a server that has ended."""
    for serving, process in zip(plan, processes, strict=True):
        if process.poll() is not None:
            raise EngineError(
                f"the server of {', '.join(serving.policies)} has ended with {process.returncode}; it says why above"
            )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False


def serve(keys: Mapping[str, Any]) -> None:
    """Serve until this process is told to stop.  Raises ``ValueError`` (or a subclass) naming the key that is wrong."""
    if keys["run"] is None:
        raise ConfigError("run is missing: give run=DIR, a run directory")
    names = ("dtype", "kv_cache_gib", "block_size", "max_batch_rows", "threads", "eager")
    settings = call("engine", VllmSettings, **{name: keys[name] for name in names})
    if type(keys["port"]) is not int:
        raise ConfigError(f"port must be a whole number, got {keys['port']!r}")
    access = Access.read(keys)
    plan = servings(trained_team("run", keys["run"], None), keys["checkpoint"], keys["port"])
    check_version()
    check_addresses(plan, keys["host"])
    check_templates(plan)
    print(f"starting {number_of(len(plan), 'server')} of vLLM, which takes a minute or more", flush=True)
    with running(plan, keys["host"], settings, access) as processes:
        await_all(plan, keys["host"], processes)
        for serving in plan:
            for policy in serving.policies:
                print(f"{policy}: {address(keys['host'], serving.port)}/v1, model {policy}", flush=True)
        print("with a key" if access.key else "without a key", "as", ", ".join(access.guard.hosts), flush=True)
        print("Ctrl-C ends all", flush=True)
        while True:
            check(plan, processes)
            time.sleep(0.5)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def run_command(cfg: DictConfig) -> None:
    """``troupe serve``, with the configuration that Hydra has composed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell lets what it starts in the background ignore the former
        signal.signal(number, _interrupt)
    try:
        serve(plain(cfg))
    except KeyboardInterrupt:
        sys.exit("ended")

"""What tests of several rooms share: the worlds' words, a board, a server that speaks for remote policies, and
configurations as the command composes them."""

import contextlib
import json
import os
import pickle
import re
import resource
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import settings
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException
from transformers import PreTrainedTokenizerFast

from troupe.envs.grid.board import vocabulary
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Task
from troupe.models.bases.tiny import build_tokenizer
from troupe.runs.faults import Observers

from .run_fixtures import disk, episode, lines, old_run, rows, run_dir, summary, tree

settings.register_profile("troupe", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("troupe")


def pytest_configure(config: pytest.Config) -> None:
    """Hide GPUs from all but the tests of ``-m gpu``, and from their processes: a test that wants one says so, and what
    the others measure on a CPU holds on every machine.
    """
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


__all__ = ["disk", "episode", "lines", "old_run", "rows", "run_dir", "summary", "tree"]  # fixtures


@pytest.fixture(autouse=True)
def observers_hold(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Where Troupe's own display, diagnostics or report fail, a run goes on, and its test fails; a test that wants them
    to clears the log."""
    yield
    records = [*caplog.get_records("setup"), *caplog.get_records("call")]
    messages = [record.getMessage() for record in records if record.name == Observers.__module__]
    assert not [message for message in messages if not message.startswith("logger.")]


@pytest.fixture(scope="session")
def words() -> PreTrainedTokenizerFast:
    """The tokenizer of the laptop scale: one token a word."""
    return build_tokenizer([*vocabulary(10), "plan_path", "sokoban"])


@pytest.fixture(scope="session")
def board() -> Task:
    """Worker 2,1, box 2,2 and goal 2,4 in an empty Sokoban room of size 6: R R solves it."""
    cell = {"worker": 2 * 6 + 1, "box": 2 * 6 + 2, "goal": 2 * 6 + 4}
    pieces = {"boxes": frozenset({cell["box"]}), "goals": frozenset({cell["goal"]})}
    return Task("board", "train", {"walls": Sokoban().walls, "worker": cell["worker"], **pieces})


@pytest.fixture(scope="session")
def composed() -> Iterator[Callable[..., DictConfig]]:
    """``composed("experiment=...", "key=value", ...)``: what ``troupe`` hands to ``build``.

    Each choice of files is composed once; values are laid over it as Hydra does, which tells what is wrong with them.
    Where keys are added or removed, too, all is Hydra's, in its order.
    """

    @cache
    def once(words: tuple[str, ...]) -> bytes:
        with initialize_config_module("troupe.configs", version_base="1.3"):
            return pickle.dumps(compose("train", overrides=list(words), return_hydra_config=True))

    def is_value(word: str) -> bool:
        key = word.partition("=")[0]
        return key in ("name", "run_dir", "resume") or bool(re.fullmatch(r"(?!hydra)\w+(\.\w+)+", key))

    def composition(*overrides: str) -> DictConfig:
        values = [] if any(word[0] in "+~" for word in overrides) else [word for word in overrides if is_value(word)]
        cfg = pickle.loads(once(tuple(word for word in overrides if word not in values)))
        try:
            for override in OverridesParser.create().parse_overrides(values):
                OmegaConf.update(cfg, override.key_or_group, override.value(), merge=True)
        except OmegaConfBaseException:
            cfg = pickle.loads(once(overrides))
        with flag_override(cfg, ["readonly", "struct"], False):
            cfg.hydra.overrides.task = list(overrides)
            HydraConfig.instance().set_config(cfg)
            del cfg["hydra"]
        return cfg

    yield composition
    HydraConfig.instance().cfg = None


@dataclass
class Fault:
    """An answer that is not what was asked for: sent as it is, after ``delay_s``; ``cut`` bytes of it never come."""

    status: int = 200
    text: str = ""
    headers: dict[str, str] = field(default_factory=lambda: {"retry-after-ms": "1"})
    delay_s: float = 0.0
    cut: int = 0


@dataclass
class ChatServer:
    """A server with OpenAI's interface on this machine.

    ``script`` says (messages, seed) -> words; ``faults`` are answered first, one a request, None
    as it should be.  ``seen`` has the body of
    each request and ``keys`` its Authorization; ``most`` is how many were under way at once.
    """

    script: Callable[[list[dict[str, str]], int], str] = lambda messages, seed: f"{messages[-1]['content']} {seed}"
    faults: deque[Fault | None] = field(default_factory=deque)
    key: str | None = None
    seen: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    delay_s: Callable[[str], float] = lambda last: 0.0  # by the last message
    at_most: int = 1000  # choices an answer
    url: str = ""
    here: int = 0
    most: int = 0

    def answer(self, body: dict[str, Any], key: str | None) -> Fault:
        """What is sent."""
        if self.faults and (fault := self.faults.popleft()):
            return fault
        if self.key is not None and key != f"Bearer {self.key}":
            return Fault(401, json.dumps({"error": {"message": f"no such key: {key}"}}))
        count = min(body.get("n", 1), self.at_most)
        words = [self.script(body["messages"], body["seed"] + i) for i in range(count)]
        choices = [{"index": i, "message": {"content": w}, "finish_reason": "stop"} for i, w in enumerate(words)]
        usage = {"prompt_tokens": 10, "completion_tokens": 2 * count}
        return Fault(
            200, json.dumps({"choices": choices, "usage": usage}), delay_s=self.delay_s(body["messages"][-1]["content"])
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    speaker: ChatServer
    lock: threading.Lock

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.lock:
            speaker = self.speaker
            speaker.seen.append(body)
            speaker.keys.append(self.headers["authorization"])
            speaker.times.append(time.monotonic())
            speaker.here += 1
            speaker.most = max(speaker.most, speaker.here)
            answer = speaker.answer(body, self.headers["authorization"])
        time.sleep(answer.delay_s)
        with self.lock:
            speaker.here -= 1
        data = answer.text.encode()
        self.send_response(answer.status)
        for name, value in {"content-type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) - answer.cut])
        self.close_connection = answer.cut > 0

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests read the counts."""


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that did not wait for its answer is part of the tests."""


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    """A running :class:`ChatServer`."""
    speaker = ChatServer()
    handler = type("Handler", (_Handler,), {"speaker": speaker, "lock": threading.Lock()})
    with _Quiet(("127.0.0.1", 0), handler) as server:
        speaker.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield speaker
        server.shutdown()
        thread.join()


@pytest.fixture
def fault() -> Callable[..., Fault]:
    """``fault(status=429)``: an answer that is not what was asked for."""
    return Fault


class SmallDisk:
    """A folder on a disk of its own, of 256 MiB, that can be full."""

    def __init__(self, path: Path) -> None:
        self.path, self.filler = path, path / "filler"

    def fill(self) -> None:
        with contextlib.suppress(OSError), self.filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        self.filler.unlink()


class SmallFiles(SmallDisk):
    """A folder in which, when it is full, no file may grow beyond 6000 bytes: the kernel refuses as on a full disk."""

    def fill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk that can be full: a tmpfs where this process may mount one, else a limit on the size of files."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(path)]
    mounted = shutil.which("mount") and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    disk = SmallDisk(path) if mounted else SmallFiles(path)
    yield disk
    if mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
    else:
        disk.free()

"""Where a base model is looked for, and what is said where it is not."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from huggingface_hub import constants

from troupe.errors import ConfigError
from troupe.models.hub import ModelNotFoundError, check_available
from troupe.setup.team import load_base


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub that nobody answers for, and an empty cache."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def test_a_folder_is_there(tmp_path: Path) -> None:
    check_available(str(tmp_path))


def test_a_model_of_the_cache_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "models--some--model"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "config.json").write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    check_available("some/model")


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("./nowhere", "no such folder, and no name on the hub either"),
        ("some/model", r"the hub was not reached .* Give a local folder in its place, or set HF_HOME"),
    ],
)
def test_what_is_not_there(base: str, message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message):
        check_available(base)
    with pytest.raises(ConfigError, match=rf"^policies\.plan\.base={base} cannot be loaded: "):
        load_base("policies.plan.base", base)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, dict[str, str], object], None]]:
    """``serve(status, headers, body)``: a hub that answers every request so."""
    servers: list[HTTPServer] = []

    def start(status: int, headers: dict[str, str], body: object) -> None:
        class Hub(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        server = HTTPServer(("127.0.0.1", 0), Hub)
        servers.append(server)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("code", "message"), [("RepoNotFound", "has no such model"), ("GatedRepo", "hf auth login")])
def test_what_the_hub_refuses(serve: Callable[..., None], code: str, message: str) -> None:
    serve(404 if code == "RepoNotFound" else 403, {"X-Error-Code": code}, {"error": "no"})
    with pytest.raises(ModelNotFoundError, match=message):
        check_available("some/model")


@pytest.mark.parametrize("gib", [0.001, 10**9])
def test_weights_that_the_disk_cannot_hold_are_not_fetched(serve: Callable[..., None], gib: float) -> None:
    halves = [{"rfilename": f"model-{i}.safetensors", "size": int(gib * 2**29)} for i in (1, 2)]
    serve(200, {}, {"id": "some/model", "siblings": [*halves, {"rfilename": "pytorch_model.bin", "size": 10**20}]})
    if gib < 1:
        check_available("some/model")
        return
    with pytest.raises(
        ModelNotFoundError, match=r"its weights have 1000000000\.0 GiB, and .* GiB are free at .*HF_HOME"
    ):
        check_available("some/model")

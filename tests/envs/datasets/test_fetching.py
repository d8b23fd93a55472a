"""Files behind URLs, from a server that says their size, says nothing, or never ends."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from troupe.envs.datasets import DataError, Table
from troupe.envs.datasets import table as fetching
from troupe.guards import bounds

LINE = b'{"name": "a"}\n'
MIB = 1 << 20


class Files(BaseHTTPRequestHandler):
    """``/rows`` has its size; ``/silent`` has none; ``/endless`` neither a size nor an end; ``/bomb`` unfolds."""

    protocol_version = "HTTP/1.0"
    sent = 0
    """Bytes of files, by all requests."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        name = self._answer()
        count = {"rows": 2, "large": 300_000, "silent": 2, "endless": 10**9}.get(name)
        if count is None:
            self._send(BOMB)
            return
        for _ in range(-(-count // 10_000)):
            if not self._send(LINE * min(count, 10_000)):
                return

    def _answer(self) -> str:
        name = self.path.strip("/").partition(".")[0]
        known = {"rows": 2 * len(LINE), "large": 300_000 * len(LINE), "bomb": len(BOMB)}
        self.send_response(404 if name == "absent" else 200)
        if name in known:
            self.send_header("Content-Length", str(known[name]))
        self.end_headers()
        return name

    def _send(self, data: bytes) -> bool:
        try:
            self.wfile.write(data)
        except OSError:  # the client has gone
            return False
        Files.sent += len(data)
        return True

    def log_message(self, *_: Any) -> None:
        pass


BOMB = gzip.compress(LINE * 200_000)


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    Files.sent = 0
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def fetched_files() -> list[Path]:
    import datasets

    return [path for path in (Path(datasets.config.HF_DATASETS_CACHE) / "troupe").glob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["rows", "silent"])
def test_a_file_is_read_and_kept(url: str, name: str) -> None:
    assert len(Table(f"{url}/{name}.jsonl").load()) == 2
    (file,) = fetched_files()
    assert file.read_bytes() == 2 * LINE and file.suffix == ".jsonl"
    sent = Files.sent
    assert len(Table(f"{url}/{name}.jsonl").load()) == 2 and Files.sent == sent, "fetched once"


def test_a_file_that_is_too_large_is_not_fetched(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MOST_BYTES", MIB)
    with pytest.raises(
        DataError, match=r"large\.jsonl cannot be fetched: it has more than 1,048,576 bytes; fetch it y"
    ):
        Table(f"{url}/large.jsonl").load()
    assert Files.sent == 0 and not fetched_files()


def test_a_file_without_an_end_is_given_up_while_it_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MOST_BYTES", MIB)
    with pytest.raises(DataError, match=r"endless\.jsonl cannot be fetched: it has more than"):
        Table(f"{url}/endless.jsonl").load()
    assert not fetched_files()


def test_what_unfolds_too_far_is_refused_as_on_this_machine(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ALWAYS", MIB)
    with pytest.raises(DataError, match="it unfolds to more than 1 MiB"):
        Table(f"{url}/bomb.jsonl.gz").load()


def test_a_file_that_is_not_there(url: str) -> None:
    with pytest.raises(DataError, match=r"absent\.jsonl cannot be fetched"):
        Table(f"{url}/absent.jsonl").load()


def test_the_files_of_a_data_set_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a real builder, with files of this machine in place of the hub's; nothing is loaded."""
    import datasets

    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_bytes(LINE * 100)
    files = {name: str(tmp_path / f"{name}.jsonl") for name in ("train", "test")}
    builder = datasets.load_dataset_builder("json", data_files=files)
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_, **__: builder)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: "loaded")
    assert Table("somebody/rows").load() == "loaded"
    monkeypatch.setattr(fetching, "MOST_BYTES", 150 * len(LINE))
    with pytest.raises(DataError, match="somebody/rows cannot be loaded from the hub: it has more than 2,100 bytes"):
        Table("somebody/rows").load()


def test_the_files_of_a_data_set_unfold_no_further_than_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above; what has been prepared is not looked at again."""
    import datasets

    for name, content in (("bomb.jsonl.gz", BOMB), ("rows.jsonl", b"PK\x03\x04")):
        (tmp_path / name).write_bytes(content)
        builder = datasets.load_dataset_builder("json", data_files=str(tmp_path / name))
        monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_, builder=builder, **__: builder)
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: "loaded")
        monkeypatch.setattr(bounds, "ALWAYS", MIB)
        with pytest.raises(DataError, match=r"somebody/rows .*it (unfolds to more than 1 MiB|is a zip archive)"):
            Table("somebody/rows").load()
    Path(builder.cache_dir).mkdir(parents=True)
    assert Table("somebody/rows").load() == "loaded"

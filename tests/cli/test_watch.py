"""A run in the browser while it is written."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from troupe.cli.main import main as troupe
from troupe.cli.watch import WatchServer, watched
from troupe.runs.lock import Lock


@contextmanager
def serving(*folders: Path) -> Iterator[WatchServer]:
    server = WatchServer(folders, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(server: WatchServer, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str, str]:
    """Status, text and content security policy."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.getheader("Content-Security-Policy") or ""
    finally:
        connection.close()


def test_the_page_is_that_of_the_report_and_changes_with_the_run(run_dir: Path) -> None:
    with serving(run_dir) as server:
        status, shell, policy = asked(server, f"/{server.token}/")
        assert status == 200 and 'src="report"' in shell and "default-src 'none'" in policy
        before = json.loads(asked(server, f"/{server.token}/state")[1])
        assert before["text"] == "1 run, none of them running"
        page = asked(server, f"/{server.token}/report")[1]
        assert page.startswith("<!doctype html>") and page == asked(server, f"/{server.token}/report")[1]
        rows = (run_dir / "metrics.jsonl").read_text().splitlines()
        last = json.loads(rows[-1])
        with (run_dir / "metrics.jsonl").open("a") as stream:
            stream.write(json.dumps(last | {"iteration": last["iteration"] + 1}) + "\n")
        after = json.loads(asked(server, f"/{server.token}/state")[1])
        assert after["stamp"] != before["stamp"]


def test_a_run_says_its_phase_while_it_trains(run_dir: Path) -> None:
    (run_dir / "phase").write_text("evaluation (before training)")  # of one that was killed
    with serving(run_dir) as server:
        assert "none of them running" in server.state()["text"]
        with Lock(run_dir / "lock", "the run"):
            stamp = server.state()["stamp"]
            assert server.state()["text"].endswith(f"{run_dir.name}: evaluation (before training)")
            (run_dir / "phase").write_text("update")
            assert (server.state()["stamp"], server.state()["text"][-8:]) == (stamp, ": update")
            (run_dir / "phase").unlink()
            (run_dir / "phase").mkdir()
            assert server.state()["text"].endswith(": training")


def test_nobody_else_reads_it(run_dir: Path) -> None:
    with serving(run_dir) as server:
        own = f"/{server.token}/"
        assert [asked(server, path)[0] for path in ("/", "/report", "//report", f"{own}../metrics.jsonl")] == [404] * 4
        assert asked(server, own, host=f"evil.example:{server.server_port}")[0] == 404
        assert asked(server, own, host="localhost:9")[0] == 200, "through a tunnel"
        assert asked(server, "/%C3%A9/")[0] == 404
        assert asked(server, own, method="POST")[0] == 501


def test_several_runs_are_one_page(tmp_path: Path, disk: Any) -> None:
    folders = [tmp_path / str(seed) for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        disk.run(folder, disk.config(seed), disk.scores(1, 2, 2))
    for places in (folders, [tmp_path]):
        with serving(*places) as server:
            assert "<h1>game</h1>" in asked(server, f"/{server.token}/report")[1]
            assert server.state()["text"].startswith("2 runs, none")
    for seed in (2, 3):
        disk.run(tmp_path / str(seed), disk.config(seed), disk.scores(1, 2, 2))
    lock = Lock(tmp_path / "2" / "lock", "run")
    with serving(tmp_path) as server:
        text = server.state()["text"]
        lock.release()
        assert text == "4 runs, 1 of them running; 2: training"


def test_what_is_no_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.argv", ["troupe", "watch", str(tmp_path)])
    with pytest.raises(SystemExit, match="it is no run directory, and none is below it"):
        troupe()


@pytest.mark.slow
def test_a_run_that_is_shown_live(run_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By a process that ends with the training."""
    with watched(run_dir):
        said = ""
        while "Ctrl-C" not in said:
            said += capfd.readouterr().out
        address = urlsplit(said.split()[0])
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
        connection.request("GET", f"{address.path}state")
        assert "1 run, none of them running" in json.loads(connection.getresponse().read())["text"]
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        connection.connect()


@pytest.mark.parametrize("config", ["", "[1, 2]", "name: x", "name: [", "loop: 3\nname: x"])
@pytest.mark.slow
def test_a_run_that_is_damaged_hides_no_other(config: str, tmp_path: Path, disk: Any) -> None:
    disk.run(tmp_path / "good", disk.config(0), disk.scores(1, 2, 2))
    disk.run(tmp_path / "bad", disk.config(1), disk.scores(1, 2, 2))
    (tmp_path / "bad" / "config.yaml").write_text(config)
    with serving(tmp_path) as server:
        assert server.state()["text"].startswith("2 runs")
        assert "good" in asked(server, f"/{server.token}/report")[1]
    with serving(tmp_path / "bad") as server:  # a page, or why there is none
        status, text, _ = asked(server, f"/{server.token}/report")
        assert status == 200 or (status == 500 and "cannot be made" in text)

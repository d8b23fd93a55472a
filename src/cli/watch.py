"""Watch a run, or several beside each other, in the browser while they are written.

The page is that of ``troupe report``, made anew when a run has written something.  It is served on this machine alone,
under an address that nobody can guess.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from ..errors import no_folder, number_of, visible
from ..runs.bounded import UnreadableError, read_text
from ..runs.files import CHECKPOINTS, CONFIG, EPISODES, EVALUATIONS, LOCK, METRICS, PHASE, SUMMARY, RunDirectoryError
from ..runs.index import find_runs
from ..runs.lock import is_held
from .main import loading

HOST = "127.0.0.1"
PORT = 8400
LISTED = 3
"""Runs whose phase is told."""
POLICY = "default-src 'none'; frame-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; script-src 'nonce-{}'"
SHELL = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>troupe watch</title>
<style>html,body{{margin:0;height:100%;color-scheme:light dark;font:14px system-ui}}
body{{display:flex;flex-direction:column;background:light-dark(#f6f5f2,#15171a)}}
p{{margin:0;padding:.4rem 1rem}}iframe{{flex:1;border:0;width:100%}}</style>
<p role="status" id="now">reading ...</p><iframe id="page" title="report" src="report"></iframe>
<script nonce="{nonce}">
let seen = "";
const page = document.getElementById("page"), now = document.getElementById("now");
async function look() {{
  setTimeout(look, 2000);
  if (document.hidden) return;
  let state;
  try {{ state = await (await fetch("state")).json(); }}
  catch {{ now.textContent = "troupe watch does not answer; what is shown is as it was"; return; }}
  now.textContent = state.text;
  if (seen && seen !== state.stamp) {{
    let y = 0, place = "";
    try {{ y = page.contentWindow.scrollY; place = page.contentWindow.location.hash; }} catch {{ }}
    page.onload = () => {{ try {{ page.contentWindow.scrollTo(0, y); }} catch {{ }} }};
    page.src = "report?" + encodeURIComponent(state.stamp) + place;
  }}
  seen = state.stamp;
}}
look();
</script></html>"""
"""The page around the report: the report itself may load nothing."""


class WatchServer(ThreadingHTTPServer):
    """Serves the page about ``folders`` at :attr:`address`.  ``port`` 0: any that is free."""

    daemon_threads = True

    def __init__(self, folders: Sequence[Path], port: int = PORT) -> None:
        super().__init__((HOST, port), partial(_Handler))
        self.folders, self.token, self._lock = folders, secrets.token_urlsafe(16), Lock()
        self._made: tuple[str, str] = ("", "")  # stamp and page
        self._next = 0.0  # when it may be made again

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def state(self) -> dict[str, str]:
        """``stamp``, another one once a run has written something, and ``text``, what the runs do now."""
        running = {path: is_held(path / LOCK) for path in _runs(self.folders)}
        phases = [f"{path.name}: {_phase(path)}" for path, runs in running.items() if runs]
        text = f"{number_of(len(running), 'run')}, {len(phases) or 'none'} of them running"
        stamp = ", ".join(
            f"{_changed(path)} {runs}" for path, runs in running.items()
        )  # one that is killed writes nothing
        return {"stamp": stamp, "text": "; ".join([text, *phases[:LISTED]])}

    def report(self) -> str:
        """The page.  It is made anew for another stamp, and takes at most a tenth of the time."""
        stamp = self.state()["stamp"]
        with self._lock:
            begun = time.monotonic()
            if self._made[0] != stamp and begun >= self._next:
                self._made = (stamp, _page(self.folders))
                self._next = time.monotonic() + 9 * (time.monotonic() - begun)
            return self._made[1]


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer

    def do_GET(self) -> None:
        host, (_, token, *rest) = self.headers.get("Host", ""), [*self.path.partition("?")[0].split("/"), "", ""][:3]
        what = "/".join(rest)
        # Another name for this machine is how a page elsewhere would reach it; a tunnel may have another port.
        own = re.fullmatch(r"(127\.0\.0\.1|localhost)(:\d+)?", host)
        if not own or not secrets.compare_digest(token.encode(), self.server.token.encode()):
            return self.send_error(404)
        try:
            if what == "state":
                return self._send(json.dumps(self.server.state()), "application/json")
            if what == "report":
                return self._send(self.server.report(), "text/html")
        except Exception as error:  # of files that are written meanwhile, or damaged
            text = f"This page cannot be made: {type(error).__name__}: {visible(str(error))}"
            return self._send(text, "text/plain", status=500)
        if what:
            return self.send_error(404)
        nonce = secrets.token_urlsafe(16)
        self._send(SHELL.format(nonce=nonce), "text/html", POLICY.format(nonce))

    def _send(self, text: str, kind: str, policy: str = "", status: int = 200) -> None:
        content = text.encode()
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content))}
        headers |= {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        for name, value in (headers | ({"Content-Security-Policy": policy} if policy else {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing: the address would stand in logs."""


def _runs(folders: Sequence[Path]) -> list[Path]:
    below = ([folder] if (folder / CONFIG).is_file() else [run.path for run in find_runs(folder)] for folder in folders)
    return [path for paths in below for path in paths]


def _changed(run: Path) -> int:
    """When something was written last, ns."""
    places = [run / METRICS, run / SUMMARY, run / EPISODES, run / EVALUATIONS, run / CHECKPOINTS]
    return max((place.stat().st_mtime_ns for place in places if place.exists()), default=0)


def _phase(path: Path) -> str:
    """What a run does now."""
    try:
        return read_text(path, PHASE)[:80]
    except (OSError, UnreadableError):
        return "training"


def _page(folders: Sequence[Path]) -> str:
    from ..reports import comparison, report
    from ..runs.run import RunReader
    from .report import gather

    if len(folders) == 1 and (folders[0] / CONFIG).is_file():
        return report.render(RunReader(folders[0], tolerant=True), [])
    return comparison.render(gather(folders))


@contextmanager
def watched(run: Path) -> Iterator[None]:
    """Within, a process of its own shows ``run``, and prints its address."""
    from ..rollout.engines.vllm.signals import end_with

    command = [sys.executable, "-m", "troupe", "watch", str(run), "--port", "0"]
    process = subprocess.Popen(command, preexec_fn=partial(end_with, os.getpid()))
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def main(arguments: Sequence[str]) -> None:
    """``troupe watch DIR [DIR ...] [--port N]``."""
    parser = argparse.ArgumentParser(
        "troupe watch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+", help="run directories, sweeps, folders of runs")
    parser.add_argument("--port", type=int, default=PORT, help=f"0: any that is free (default {PORT})")
    options = parser.parse_args(arguments)
    folders: list[Path] = options.folders
    for folder in folders:
        if not _runs([folder]):
            reason = "it is no run directory, and none is below it" if folder.is_dir() else no_folder(folder)
            sys.exit(f"error: {visible(f'{folder}: {reason}')}")
    try:
        server = WatchServer(folders, options.port)
    except (OSError, OverflowError) as error:
        sys.exit(f"error: --port {options.port}: {error}; give --port 0 for any that is free")
    try:
        with loading():
            server.report()
    except RunDirectoryError as error:
        sys.exit(f"error: {visible(str(error))}")
    print(f"{server.address} (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print(file=sys.stderr)

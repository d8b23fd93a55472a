"""Watch a run, or several beside each other, in the browser while they are written.

The page is that of ``troupe report``, made anew when a run has written something.  It is served on this machine alone,
under an address that nobody can guess.
"""

from __future__ import annotations

import argparse
import json
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

from ..errors import visible
from ..runs.files import CONFIG, EPISODES, METRICS, SUMMARY, RunDirectoryError
from ..runs.index import find_runs
from .main import loading

HOST = "127.0.0.1"
PORT = 8400
POLICY = "default-src 'none'; frame-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; script-src 'nonce-{}'"
SHELL = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>troupe watch</title>
<style>html,body{{margin:0;height:100%;color-scheme:light dark;font:14px system-ui}}
body{{display:flex;flex-direction:column}}p{{margin:0;padding:.4rem 1rem}}iframe{{flex:1;border:0;width:100%}}</style>
<p role="status" id="now">reading ...</p><iframe id="page" title="report" src="report"></iframe>
<script nonce="{nonce}">
let seen = "";
const page = document.getElementById("page"), now = document.getElementById("now");
async function look() {{
  try {{
    const state = await (await fetch("state")).json();
    now.textContent = state.text;
    if (seen && seen !== state.stamp) {{
      const view = page.contentWindow, y = view.scrollY, place = view.location.hash;
      page.onload = () => {{ page.contentWindow.location.hash = place; page.contentWindow.scrollTo(0, y); }};
      view.location.reload();
    }}
    seen = state.stamp;
  }} catch {{ now.textContent = "troupe watch has ended; what is shown is as it was"; }}
  setTimeout(look, 2000);
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

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def state(self) -> dict[str, str]:
        """``stamp``, another one once a run has written something, and ``text``, how far the runs are."""
        from ..runs.run import RunReader

        runs = [RunReader(path, tolerant=True) for path in _runs(self.folders)]
        parts = [(f"{_changed(run.path)} {run.state}", _progress(run)) for run in runs]
        return {"stamp": ", ".join(stamp for stamp, _ in parts), "text": "; ".join(text for _, text in parts)}

    def report(self) -> str:
        """The page; made once for each stamp."""
        with self._lock:
            stamp = self.state()["stamp"]
            if self._made[0] != stamp:
                self._made = (stamp, _page(self.folders))
            return self._made[1]


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer

    def do_GET(self) -> None:
        host, (_, token, *rest) = self.headers.get("Host", ""), [*self.path.split("/"), "", ""][:3]
        what = "/".join(rest)
        # Another name for this machine is how a page elsewhere would reach it.
        if host != f"{HOST}:{self.server.server_port}" or not secrets.compare_digest(token, self.server.token):
            return self.send_error(404)
        if what == "state":
            return self._send(json.dumps(self.server.state()), "application/json")
        if what == "report":
            return self._send(self.server.report(), "text/html")
        if what:
            return self.send_error(404)
        nonce = secrets.token_urlsafe(16)
        self._send(SHELL.format(nonce=nonce), "text/html", POLICY.format(nonce))

    def _send(self, text: str, kind: str, policy: str = "") -> None:
        content = text.encode()
        self.send_response(200)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content))}
        headers |= {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        for name, value in (headers | ({"Content-Security-Policy": policy} if policy else {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing: the address would stand in logs."""


def _runs(folders: Sequence[Path]) -> list[Path]:
    return [path for folder in folders for path in ([folder] if (folder / CONFIG).is_file() else _below(folder))]


def _below(folder: Path) -> list[Path]:
    return [run.path for run in find_runs(folder)]


def _changed(run: Path) -> int:
    """When something was written last, ns."""
    places = [run / METRICS, run / SUMMARY, run / EPISODES]
    return max((place.stat().st_mtime_ns for place in places if place.exists()), default=0)


def _progress(run: Any) -> str:
    name, done, planned = run.config.get("name", run.path.name), len(run.rows), run.config["loop"]["iterations"]
    written = time.strftime("%H:%M:%S", time.localtime(_changed(run.path) / 1e9))
    return f"{name}, seed {run.config.get('seed')}: {run.state}, iteration {done} of {planned}, written {written}"


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
    process = subprocess.Popen([sys.executable, "-m", "troupe", "watch", str(run), "--port", "0"])
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
            sys.exit(f"error: {visible(str(folder))} is no run directory, and none is below it")
    try:
        with loading():
            server = WatchServer(folders, options.port)
            server.report()
    except (RunDirectoryError, OverflowError) as error:
        sys.exit(f"error: {visible(str(error))}")
    except OSError as error:
        sys.exit(f"error: --port {options.port}: {error.strerror}; give --port 0 for any that is free")
    print(f"{server.address} (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print(file=sys.stderr)

"""A team on the hub: the folder, its card, and the upload to a server on this machine."""

import base64
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard, constants

from troupe import Experiment, Run
from troupe.errors import ConfigError, PublishError
from troupe.models.learning.adapters import without_peft_warnings
from troupe.reports.model_card import PublishedPolicy, model_card
from troupe.runs.files import RunDirectoryError

SMALL = ["seed=7", "env.horizon=1", "loop.iterations=0", "loop.test_tasks=3", "loop.validation_tasks=1"]
Trained = Callable[..., Run]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """``trained("sokoban_lora", "key=value", ...)``: a run that was evaluated, and has its checkpoint."""

    def run(experiment: str, *overrides: str) -> Run:
        path = tmp_path_factory.mktemp("published") / "run"
        return Experiment.compose(experiment, [*SMALL, *overrides, f"run_dir={path}"]).train()

    return run


@pytest.fixture(scope="module")
def run(trained: Trained) -> Run:
    return trained("sokoban_specialized")


def loaded(folder: Path, repo: str) -> dict[str, Any]:
    """What the code of the card makes, with the folder in the repository's place."""
    card = (folder / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict[str, Any] = {}
    loads = code.replace(f'repo = "{repo}"', f"repo = {str(folder)!r}")
    assert loads != code
    exec(loads, names)
    return names


def test_the_folder_holds_policies_and_their_card(run: Run, tmp_path: Path) -> None:
    folder = run.write_hub_folder(tmp_path / "hub", "me/team", "last")
    assert {path.name for path in folder.iterdir()} == {"README.md", "tool", "plan"}
    files = {path.name for path in (folder / "tool").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"} <= files
    assert "training.pt" not in files  # an optimizer's state
    names = loaded(folder, "me/team")
    model, tokenizer = run.policy("plan", "last")
    assert all(torch.equal(a, b) for a, b in zip(names["model"].parameters(), model.parameters(), strict=True))
    assert names["tokenizer"].get_vocab() == tokenizer.get_vocab()


def test_what_else_lies_in_a_checkpoint_stays_here(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, copy := tmp_path / "run", symlinks=True)
    policy = (copy / "checkpoints" / "last" / "tool").resolve()
    for name in ("secrets.json", "notes.txt", "other.jinja", "requirements.txt", "modeling.py"):
        (policy / name).write_text("{}")
    for name in ("config.json", "tokenizer_config.json"):
        settings = json.loads((policy / name).read_text())
        (policy / name).write_text(json.dumps(settings | {"auto_map": {"AutoModel": "modeling.Mine"}}))
    folder = Run(copy).write_hub_folder(tmp_path / "hub", "me/team", "last")
    expected = {"model.safetensors", "config.json", "generation_config.json"}
    expected |= {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    assert {path.name for path in (folder / "tool").iterdir()} == expected
    for name in ("config.json", "tokenizer_config.json"):
        kept = json.loads((folder / "tool" / name).read_text())
        assert "auto_map" not in kept and kept == json.loads((folder / "plan" / name).read_text())


def test_names_are_no_html_and_no_line_of_the_card(run: Run) -> None:
    name = "<img src=x onerror=alert(1)>\n# more"
    policy = PublishedPolicy(name, [name, "b"], "full", name, "folder")
    text = model_card(run, "me/team", "last", [policy]).text
    assert "<img" not in text and "&lt;img src=x onerror=alert(1)&gt; # more, b" in text and "\n# more" not in text


def test_the_card_says_what_the_summary_says(run: Run, tmp_path: Path) -> None:
    folder = run.write_hub_folder(tmp_path / "hub", "me/team", "last")
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers" and "troupe" in card.data.tags
    assert card.data.base_model is None  # the base model is not on the hub
    (result,) = card.data.eval_results
    assert card.data.model_name == "team" and result.metric_value == run.summary["eval/success"]
    for score in ("eval_before", "eval"):
        low, high = (100 * bound for bound in run.summary[f"{score}/success_ci95"])
        assert f"{100 * run.summary[f'{score}/success']:.1f} % ({low:.1f} to {high:.1f})" in card.text
    for fact in ("`Sokoban`", "K = 4", "`AtGrpo`", "`ClippedObjective`", "3 held-out tasks", "horizon: 1", "seed 7"):
        assert fact in card.text
    assert "| `tool` | tool | full | `laptop` of Troupe | `tool/` |" in card.text
    assert str(run.path) not in card.content and "{{" not in card.content


@pytest.mark.slow
def test_an_adapter_comes_with_its_base_model(trained: Trained, tmp_path: Path) -> None:
    run = trained("sokoban_lora")
    folder = run.write_hub_folder(tmp_path / "hub", "me/team", "last")
    assert {path.name for path in folder.iterdir()} == {"README.md", "tool", "plan", "base"}
    assert json.loads((folder / "tool" / "adapter_config.json").read_text())["base_model_name_or_path"] == "me/team"
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "peft" and "| lora | `laptop` of Troupe, here in `base/` | `tool/` |" in card.text
    expected, tokenizer = run.policy("plan", "last")
    prompt = torch.tensor([tokenizer.encode("sokoban", add_special_tokens=False)])
    with without_peft_warnings():
        names = loaded(folder, "me/team")
    with torch.no_grad():
        assert torch.equal(names["model"](prompt).logits, expected(prompt).logits)


@pytest.mark.slow
def test_frozen_and_remote_policies(trained: Trained, chat_server: Any, tmp_path: Path) -> None:
    chat_server.script = lambda messages, seed: "R"
    server = ["policy@policies.tool=[laptop,remote]", "policies.tool.remote.model=m"]
    run = trained("sokoban_specialized", *server, f"policies.tool.remote.url={chat_server.url}")
    folder = run.write_hub_folder(tmp_path / "hub", "me/team", "last")
    assert {path.name for path in folder.iterdir()} == {"README.md", "plan"}
    text = (folder / "README.md").read_text()
    assert "| `tool` | tool | remote | behind a server | none |" in text and chat_server.url not in text
    with pytest.raises(ConfigError, match=r"policy 'tool' of .* is a model behind a server: its weights are not here"):
        run.policy("tool", "last")
    folder = run.write_hub_folder(tmp_path / "base", "me/team", "base")  # of all policies the base model
    assert {path.name for path in folder.iterdir()} == {"README.md", "base"}
    assert loaded(folder, "me/team")["model"].num_parameters() > 0


def test_what_cannot_be_published_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"out={tmp_path} is not an empty folder"):
        run.write_hub_folder(tmp_path, "me/team", "last")
    with pytest.raises(ConfigError, match=r"repo: .*me/my team"):
        run.write_hub_folder(tmp_path / "hub", "me/my team", "last")
    with pytest.raises(ConfigError, match="checkpoint=best: no checkpoint 'best'"):
        run.write_hub_folder(tmp_path / "hub", "me/team", "best")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(run.config_text)
    shutil.copytree(run.path / "checkpoints", tmp_path / "run" / "checkpoints", symlinks=True)
    with pytest.raises(RunDirectoryError, match=r"has no eval_before/success.*status is unknown"):
        Run(tmp_path / "run").write_hub_folder(tmp_path / "hub", "me/team", "last")
    assert not (tmp_path / "hub").exists()


def test_a_hub_that_is_not_reached_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody answers
    with pytest.raises(PublishError, match=r"repo=me/team was not uploaded to http://127\.0\.0\.1:9: "):
        run.push_to_hub("me/team", "last")


# ---- a hub on this machine -------------------------------------------------------------------------------------------


class Hub(BaseHTTPRequestHandler):
    """The requests of an upload, as the hub answers them; every file goes into the commit itself."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]
    created: list[dict[str, Any]]
    keys: set[str | None]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.keys.add(self.headers["authorization"])
        url = constants.ENDPOINT
        match self.path.split("?")[0].split("/")[2:]:
            case ["repos", "create"]:
                self.created.append(json.loads(body))
                self._answer({"url": f"{url}/me/team", "name": "me/team", "id": "1"})
            case ["validate-yaml"]:
                self._answer({"errors": [], "warnings": []})
            case ["models", "me", "team", "preupload", "main"]:
                modes = {"uploadMode": "regular", "shouldIgnore": False}
                self._answer({"files": [{"path": file["path"]} | modes for file in json.loads(body)["files"]]})
            case ["models", "me", "team", "commit", "main"]:
                for line in map(json.loads, body.decode().splitlines()):
                    if line["key"] == "file":
                        self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                self._answer({"commitUrl": f"{url}/me/team/commit/1", "commitOid": "1", "hookOutput": ""})
            case other:
                self._answer({"error": f"unexpected: {other}"}, 404)

    def do_GET(self) -> None:
        self._answer({"error": f"unexpected: {self.path}"}, 404)

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests read what came."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    handler: type[Hub] = type("OneHub", (Hub,), {"files": {}, "created": [], "keys": set()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_TOKEN", "hf_key")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield handler
        server.shutdown()
        thread.join()


def test_an_upload_brings_the_folder_to_the_hub(run: Run, hub: type[Hub], tmp_path: Path) -> None:
    address = run.push_to_hub("me/team", "last", private=True)
    assert address.endswith("/me/team")
    (created,) = hub.created
    assert (created["organization"], created["name"], created["visibility"]) == ("me", "team", "private")
    folder = run.write_hub_folder(tmp_path / "hub", "me/team", "last")
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert hub.files == files and hub.keys == {"Bearer hf_key"}


@pytest.mark.slow
def test_a_callback_uploads_the_team_at_the_end(trained: Trained, hub: type[Hub]) -> None:
    with pytest.raises(ConfigError, match=r"^callbacks\.push_to_hub.*no team"):
        trained("sokoban_specialized", "callbacks=push_to_hub", "callbacks.push_to_hub.repo=no team")
    trained("sokoban_specialized", "callbacks=[early_stop,push_to_hub]", "callbacks.push_to_hub.repo=me/team")
    assert {"README.md", "tool/model.safetensors", "plan/model.safetensors"} <= hub.files.keys()

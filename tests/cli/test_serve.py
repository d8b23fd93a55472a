"""Which servers a trained team needs; and, with vLLM, that they answer as the team does and end together."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from troupe import configs
from troupe.api.playing import play_team
from troupe.cli import train
from troupe.cli.serve import GUARD, Access, Serving, address, check_addresses, check_templates, command, serve, servings
from troupe.cli.start import play_words
from troupe.errors import ConfigError
from troupe.gateway import guard
from troupe.models.bases.base_models import resolve
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.models.bases.tiny import build_tokenizer
from troupe.rollout.engines.vllm.settings import VllmSettings
from troupe.runs.run import RunReader
from troupe.setup.evaluation import TeamSource, trained_team

from ..processes import alive, below

Composed = Callable[..., DictConfig]
SETTINGS = VllmSettings("float32", 0.25, 32, 16, 1, 1.0, 0)
PROMPT = list(range(10, 40))
KEYS: Any = OmegaConf.to_container(OmegaConf.load(Path(configs.__path__[0]) / "serve.yaml"))
"""Those of ``troupe serve``, by default."""


@pytest.fixture
def run(tmp_path: Path, composed: Composed) -> Any:
    """``run(experiment, ...)``: of a run that has checkpoints, as far as their folders go."""

    def build(experiment: str, *words: str) -> TeamSource:
        config: Any = OmegaConf.to_container(
            composed(f"experiment={experiment}", f"run_dir={tmp_path}", *words), resolve=True
        )
        (tmp_path / "checkpoints" / "best").mkdir(parents=True, exist_ok=True)
        (tmp_path / "config.yaml").touch()
        return TeamSource(config, RunReader(tmp_path))

    return build


def test_policies_with_models_of_their_own_have_a_server_each(run: Any, tmp_path: Path) -> None:
    best = tmp_path / "checkpoints" / "best"
    found = servings(run("sokoban_specialized"), "best", 8000)
    assert found == [Serving(f"{best}/tool", 8000, ["tool"]), Serving(f"{best}/plan", 8001, ["plan"])]
    assert servings(run("sokoban_shared"), "best", 8000) == [Serving(f"{best}/shared", 8000, ["shared"])]


def test_adapters_share_the_server_of_their_base_with_a_frozen_policy(run: Any, tmp_path: Path) -> None:
    best, base = tmp_path / "checkpoints" / "best", resolve("laptop")
    adapters = {name: f"{best}/{name}" for name in ("tool", "plan")}
    assert servings(run("sokoban_lora"), "best", 9000) == [Serving(base, 9000, [], adapters)]
    mixed = run("sokoban_lora")
    mixed.config["policies"]["plan"]["tuning"] = "frozen"
    assert servings(mixed, "best", 9000) == [Serving(base, 9000, ["plan"], {"tool": f"{best}/tool"})]


def test_policies_that_say_different_things_to_one_template_have_a_server_each(run: Any, tmp_path: Path) -> None:
    best, base = tmp_path / "checkpoints" / "best", resolve("laptop")
    lora = run("sokoban_lora", "+policies.tool.chat.enable_thinking=false")
    chat = {"enable_thinking": False}
    found = servings(lora, "best", 9000)
    tool, plan = ({name: f"{best}/{name}"} for name in ("tool", "plan"))
    assert found == [Serving(base, 9000, [], tool, chat), Serving(base, 9001, [], plan)]
    words = command(Serving("some/model", 8000, ["plan"], {}, chat), "127.0.0.1", SETTINGS)
    assert words[words.index("--default-chat-template-kwargs") + 1] == '{"enable_thinking": false}'
    assert "--default-chat-template-kwargs" not in command(Serving("some/model", 8000, ["plan"]), "127.0.0.1", SETTINGS)


def test_a_server_has_room_for_the_largest_adapter(tmp_path: Path) -> None:
    for name, rank in (("tool", 4), ("plan", 12)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(json.dumps({"r": rank}))
    adapters = {name: str(tmp_path / name) for name in ("tool", "plan")}
    words = " ".join(command(Serving("base/folder", 8001, [], adapters), "127.0.0.1", SETTINGS))
    assert "--model base/folder --host 127.0.0.1 --port 8001 --served-model-name base" in words
    assert "--max-loras 3 --max-lora-rank 16" in words and "--kv-cache-memory-bytes 268435456" in words
    assert words.endswith(f"--lora-modules tool={tmp_path}/tool plan={tmp_path}/plan")
    assert "--enable-lora" not in command(Serving("some/model", 8000, ["plan"]), "127.0.0.1", SETTINGS)
    (tmp_path / "plan" / "adapter_config.json").write_text(json.dumps({"r": 513}))
    with pytest.raises(ValueError, match=r"policy 'tool, plan': vLLM runs adapters of rank r <= 512, got 513"):
        command(Serving("base/folder", 8001, [], adapters), "127.0.0.1", SETTINGS)


def test_a_server_compiles_where_eager_is_false() -> None:
    eager = command(Serving("some/model", 8000, ["plan"]), "127.0.0.1", SETTINGS)
    compiled = command(Serving("some/model", 8000, ["plan"]), "127.0.0.1", replace(SETTINGS, eager=False))
    assert set(eager) ^ set(compiled) == {"--enforce-eager", "--no-enforce-eager"}
    assert "--enforce-eager" in eager


def test_mistakes_are_answered_by_key(run: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run=.*: no checkpoint .first."):
        servings(run("sokoban_shared"), "first", 8000)
    with pytest.raises(ConfigError, match=r"run=.*: no checkpoint 'last'"):
        servings(run("sokoban_shared"), "last", 8000)
    keys = KEYS
    with pytest.raises(ConfigError, match="run is missing"):
        serve(keys)
    with pytest.raises(ConfigError, match=r"run: nowhere is not a run directory"):
        serve(keys | {"run": "nowhere"})
    with pytest.raises(ConfigError, match=r"port must be a whole number, got '8O00'"):
        serve(keys | {"run": "nowhere", "port": "8O00"})


def test_a_port_that_cannot_be_had_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for wrong, host, why in (
            (port, "127.0.0.1", "nothing can listen there on host=127.0.0.1: .*in use"),
            (65536, "127.0.0.1", "a port is between 1 and 65535"),
            (port, "no.such.host.invalid", "nothing can listen there on host=no.such.host.invalid"),
        ):
            with pytest.raises(ConfigError, match=rf"port={wrong}, of tool, plan: {why}"):
                check_addresses([Serving("some/model", wrong, ["tool"], {"plan": "folder"})], host)
    check_addresses([Serving("some/model", port, ["tool"])], "127.0.0.1")


def test_a_server_begins_no_answers(run: Any) -> None:
    with pytest.raises(ConfigError, match=r"^policies\.tool\.chat\.prefill: .* its clients say$"):
        servings(run("sokoban_lora", "+policies.tool.chat.prefill=at"), "best", 8000)


def test_chat_templates_are_tried_before_a_server_has_them(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(["word"])
    tokenizer.chat_template = "{{ ''.__class__.__mro__ }}"
    tokenizer.save_pretrained(tmp_path / "base")
    with pytest.raises(ValueError, match=r"^policies\.p\.base: its chat template cannot write prompts: SecurityError"):
        check_templates([Serving(str(tmp_path / "base"), 8000, ["p"])])
    with pytest.raises(ConfigError, match=r"^policies\.p\.base=.*none cannot be loaded: "):
        check_templates([Serving(str(tmp_path / "none"), 8000, ["p"])])


def test_who_may_ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TROUPE_API_KEY", raising=False)
    local = Access.read(KEYS)
    assert local.key is None and local.guard.hosts == ("localhost", "127.0.0.1", "::1") and not local.guard.any_address
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(ConfigError, match=rf"host={host}: everybody who .* set TROUPE_API_KEY .*api_key_file"):
            Access.read(KEYS | {"host": host})
    assert Access.read(KEYS | {"host": "0.0.0.0", "public_without_key": True}).guard.any_address
    (tmp_path / "key").write_text("sixteen-or-more!\n")
    public = Access.read(KEYS | {"host": "192.0.2.1", "api_key_file": str(tmp_path / "key"), "hosts": ["My.Host"]})
    assert public.key == "sixteen-or-more!" and public.guard.hosts[-2:] == ("192.0.2.1", "my.host")
    monkeypatch.setenv("TROUPE_API_KEY", "from-the-environment")
    found = Access.read(KEYS)
    assert found.environment["TROUPE_API_KEY"] == "from-the-environment" and "from-the" not in repr(found)
    # The key is in no process list, and what the server's process reads is what was meant.
    words = command(Serving("some/model", 8000, ["plan"]), "127.0.0.1", SETTINGS)
    assert words[words.index("--middleware") + 1] == GUARD == "troupe.gateway.guard.Guard"
    assert "from-the-environment" not in " ".join(words) and words[words.index("--load-format") + 1] == "safetensors"
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    assert guard.GuardSettings.from_environment() == found.guard
    for wrong in ("short", "with blanks in the middle", ""):
        monkeypatch.setenv("TROUPE_API_KEY", wrong)
        with pytest.raises(ConfigError, match="TROUPE_API_KEY: a key is 16 or more letters"):
            Access.read(KEYS)
    for keys, message in (
        ({"api_key_file": "nowhere"}, "api_key_file=nowhere cannot be read"),
        ({"hosts": "name"}, "hosts must be a list of names"),
        ({"max_requests": 0}, "max_requests must be a whole number of at least 1"),
        ({"host": "no.such.host.invalid"}, "host=no.such.host.invalid: nothing can listen there"),
    ):
        with pytest.raises(ConfigError, match=message):
            Access.read(KEYS | {"api_key_file": str(tmp_path / "key")} | keys)
    assert address("::1", 8000) == "http://[::1]:8000" and address("127.0.0.1", 80) == "http://127.0.0.1:80"


def test_a_base_is_no_word_of_vllms_command_line(run: Any) -> None:
    team = run("sokoban_shared")
    team.config["policies"]["shared"]["base"] = "--trust-remote-code"
    with pytest.raises(ConfigError, match=r"policies\.shared\.base=--trust-remote-code is neither"):
        servings(team, "base", 8000)


# ---- for real -----------------------------------------------------------------------------------------------------


def asked(port: int, path: str, **keys: Any) -> Any:
    data = json.dumps(keys).encode() if keys else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


@contextmanager
def served(*words: str) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """``troupe serve`` once it answers, its port, and what it said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = (*words, f"port={port}", "kv_cache_gib=0.1", "max_batch_rows=8")
    with subprocess.Popen(
        [sys.executable, "-m", "troupe", "serve", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as server:
        try:
            assert server.stdout is not None
            lines: list[str] = []
            while not lines or lines[-1] != "Ctrl-C ends all\n":
                lines.append(server.stdout.readline())
                assert lines[-1], "the servers have ended"
            yield server, port, lines
        finally:
            server.kill()


def messages(run: Path, *words: str) -> list[str]:
    """What the agents of ``run`` say, greedily, in the game of ``troupe play``."""
    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("play", overrides=play_words([f"run={run}", "checkpoint=last", "temperature=0", *words]))
    [episode] = play_team(OmegaConf.to_container(cfg), Console(file=io.StringIO()))  # type: ignore[arg-type]
    return [message["said"].strip() for message in episode.messages]  # vLLM decodes a blank before the first word


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")
def test_a_trained_teams_adapters_answer_as_peft_says_and_ctrl_c_ends_all(tmp_path: Path, composed: Composed) -> None:
    few = "loop.iterations=1 loop.tasks_per_iteration=2 loop.validation_tasks=1 loop.test_tasks=1 env.horizon=2".split()
    words = ["experiment=sokoban_lora", f"run_dir={tmp_path / 'run'}", *few, "policies.plan.optimizer.lr=0.1"]
    train.run(composed(*words))
    with served(f"run={tmp_path / 'run'}", "checkpoint=last") as (server, port, lines):
        for policy in ("tool", "plan"):
            assert f"{policy}: http://127.0.0.1:{port}/v1, model {policy}\n" in lines
        tokenizer = load_tokenizer("laptop")
        for policy in ("tool", "plan"):
            model = load_model(str(tmp_path / "run" / "checkpoints" / "last" / policy))
            with torch.no_grad():
                expected = torch.log_softmax(model(torch.tensor([PROMPT])).logits[0, -1], -1).max(-1)
            keys = {"prompt": PROMPT, "max_tokens": 1, "temperature": 0, "logprobs": 1}
            [choice] = asked(port, "/v1/completions", model=policy, **keys)["choices"]
            [best] = choice["logprobs"]["top_logprobs"]
            assert list(best) == [tokenizer.decode([expected.indices.item()])]
            assert list(best.values()) == pytest.approx([expected.values.item()], abs=1e-3)
        message = [{"role": "user", "content": "U D"}]
        assert asked(port, "/v1/chat/completions", model="tool", messages=message, max_tokens=2)["choices"]
        served_team = [f"agents.{agent}=http://127.0.0.1:{port}/v1" for agent in ("tool", "plan")]
        assert messages(tmp_path / "run", *served_team) == messages(tmp_path / "run")
        there = below(server.pid)
        os.killpg(server.pid, signal.SIGINT)
        server.wait(60)
    with socket.socket() as again:
        assert again.connect_ex(("127.0.0.1", port)) != 0
    assert len(there) >= 2 and not any(map(alive, there))
    assert trained_team("run", str(tmp_path / "run"), None).run


@pytest.mark.vllm
def test_killed_it_takes_its_servers_along(tmp_path: Path, composed: Composed) -> None:
    OmegaConf.save(composed("experiment=sokoban_shared", f"run_dir={tmp_path}"), tmp_path / "config.yaml", resolve=True)
    with served(f"run={tmp_path}", "checkpoint=base") as (server, _, _):
        there = below(server.pid)
        assert len(there) >= 2, "a server and its engine"
        server.kill()
        server.wait()
        end = time.monotonic() + 30
        while any(map(alive, there)):
            assert time.monotonic() < end, "left behind"
            time.sleep(0.1)

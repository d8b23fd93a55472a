"""A trained team behind the gateway: what it answers, and what it records of every call."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from omegaconf import DictConfig, OmegaConf

from troupe import configs
from troupe.cli import train
from troupe.cli.gateway import CALLS, History, TrainedAgents, gateway
from troupe.envs.workflow.messages import identity
from troupe.errors import ConfigError, DiskFullError
from troupe.experience import Completion, Sampling
from troupe.gateway.guard import RefusedError
from troupe.gateway.protocol import ChatMessage, ChatReply, ChatRequest, Draft
from troupe.models.bases.loading import load_tokenizer
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.scripted import ScriptedEngine

KEYS: Any = OmegaConf.to_container(OmegaConf.load(Path(configs.__path__[0]) / "gateway.yaml"))
WORDS = "colours red blue before none guess none"


@pytest.fixture(scope="module")
def run(composed: Callable[..., DictConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an untrained team of two."""
    path = tmp_path_factory.mktemp("runs") / "run"
    small = ["loop.iterations=0", "loop.test_tasks=1", "loop.validation_tasks=1", "diagnostics=off"]
    train.train(train.build(composed("env=signalling", "regime=specialized", *small, f"run_dir={path}")))
    return path


@contextmanager
def serving(
    run: Path, record: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[str, threading.Event, Future[None]]]:
    """The address, what ends the server, and its end."""
    until, text = threading.Event(), ""
    keys = KEYS | {"run": str(run), "checkpoint": "last", "port": 0, "record": str(record)}
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(gateway, keys, until)
        try:
            while "Ctrl-C" not in text:
                assert not ended.done()
                text += capsys.readouterr().out
                time.sleep(0.01)
            found = re.search(r"^sender: (\S+)/episodes/NAME/v1, model sender$", text, re.MULTILINE)
            assert found is not None and "receiver: " in text and "without a key" in text
            yield found[1], until, ended
        finally:
            until.set()


def ask(url: str, agent: str, *texts: str, **keys: Any) -> Any:
    """The reply in a chat of the user and the assistant in turn."""
    roles = ("user", "assistant")
    messages: Any = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        return client.chat.completions.create(model=agent, messages=messages, **keys)


def test_calls_are_answered_and_recorded(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(run, tmp_path / "calls.jsonl", capsys) as (url, until, ended):
        tokenizer = load_tokenizer(str(run / "checkpoints" / "last" / "sender"))
        first = ask(f"{url}/episodes/a/v1", "sender", WORDS)
        said = first.choices[0].message.content
        second = ask(f"{url}/episodes/a/v1", "sender", WORDS, said, WORDS)
        again = ask(f"{url}/episodes/a-copy/v1", "sender", WORDS)
        assert first.usage.completion_tokens == len(tokenizer.encode(said)) + (first.choices[0].finish_reason == "stop")
        with pytest.raises(
            openai.NotFoundError, match="there is no agent 'eve'; a model's name is one of sender, receiver"
        ):
            ask(f"{url}/v1", "eve", WORDS)
        with pytest.raises(openai.BadRequestError, match=r"has no token for 'zebra'") as error:
            ask(f"{url}/episodes/b/v1", "sender", "zebra")
        assert error.value.code == "invalid_prompt"
        with pytest.raises(openai.BadRequestError, match="exceed the context of policy"):
            ask(f"{url}/episodes/b/v1", "sender", "red " * 5000)
        with pytest.raises(
            openai.BadRequestError, match="messages of 3000000 characters exceed the context of"
        ) as error:
            ask(f"{url}/episodes/b/v1", "sender", "z" * 3_000_000)  # one word, and so one token
        with pytest.raises(openai.BadRequestError, match=r"has no token for 'z{100}'\.\.\.: ") as error:
            ask(f"{url}/episodes/b/v1", "sender", "z" * 1000)
        with pytest.raises(openai.NotFoundError, match="there is no agent 'zzz") as unknown:
            ask(f"{url}/episodes/b/v1", "z" * 1_000_000, WORDS)
        assert len(str(error.value)) < 1000 and len(str(unknown.value)) < 1500
        with pytest.raises(openai.BadRequestError, match="tools=hermes or tools=llama"):
            ask(f"{url}/episodes/b/v1", "sender", WORDS, tools=[{"type": "function", "function": {"name": "f"}}])
        with pytest.raises(openai.BadRequestError, match="completions"):  # the guard, before the gateway
            ask(f"{url}/episodes/b/v1", "sender", WORDS, n=2)
        with pytest.raises(openai.NotFoundError, match="the gateway serves"):  # counted, and not in the file
            ask(f"{url}/elsewhere", "sender", WORDS)
        lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
        calls = [line for line in lines if "refused" not in line]
        assert [(each["episode"], each["call"], each["agent"]) for each in calls] == [
            ("a", 0, "sender"),
            ("a", 1, "sender"),
            ("a-copy", 0, "sender"),
        ]
        one, two, _ = calls
        assert len(one["token_ids"]) == len(one["logprobs"]) == first.usage.completion_tokens
        assert one["policy"] == "sender" and one["version"] == 0 and not one["retokenised"]
        assert tokenizer.decode(one["token_ids"], skip_special_tokens=True) == one["text"] == said
        tokens = one["token_ids"][:-1] if one["finish_reason"] == "stop" else one["token_ids"]
        assert any(two["prompt_ids"][i : i + len(tokens)] == tokens for i in range(len(two["prompt_ids"])))
        assert second.usage.prompt_tokens == len(two["prompt_ids"])
        assert [(line["agent"], line["refused"]) for line in lines if "refused" in line] == [
            (None, "model_not_found"),
            ("sender", "invalid_prompt"),
            ("sender", "context_length_exceeded"),
            ("sender", "context_length_exceeded"),
            ("sender", "invalid_prompt"),
            (None, "model_not_found"),
            ("sender", "invalid_value"),
            ("sender", "invalid_value"),
        ]
        assert [each["unmatched"] for each in calls] == [0, 0, 0]
        until.set()
        ended.result()
        assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("refused")] == [
            "refused: 2 of no agent (model_not_found)",
            "refused: 1 of no agent (unknown_path)",
            "refused: 2 of sender (context_length_exceeded)",
            "refused: 2 of sender (invalid_prompt)",
            "refused: 2 of sender (invalid_value)",
        ]
        assert again.usage.prompt_tokens == first.usage.prompt_tokens


def test_a_stream_says_what_is_recorded(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(run, tmp_path / "calls.jsonl", capsys) as (url, _, _):
        messages: Any = [{"role": "user", "content": WORDS}]
        session = {"x-troupe-session": "lead/one"}
        keys: Any = {"model": "sender", "messages": messages, "logprobs": True, "extra_headers": session}
        with openai.OpenAI(base_url=f"{url}/episodes/a/v1", api_key="none", max_retries=0) as client:
            choices = [c for chunk in client.chat.completions.create(stream=True, **keys) for c in chunk.choices]
            whole = client.chat.completions.create(**keys).choices[0]
        streamed, called = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
        assert streamed["session"] == called["session"] == "lead/one"
        assert "".join(choice.delta.content or "" for choice in choices) == streamed["text"]
        logprobs = [each.logprob for choice in choices if choice.logprobs for each in choice.logprobs.content or []]
        assert logprobs == streamed["logprobs"]
        assert [each.logprob for each in whole.logprobs.content] == called["logprobs"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("agent", "error", "code"),
    [("sender", openai.InternalServerError, "record_failed"), ("eve", openai.NotFoundError, "model_not_found")],
)
def test_a_record_that_cannot_be_written_ends_the_server(
    run: Path, capsys: pytest.CaptureFixture[str], agent: str, error: type[openai.APIStatusError], code: str
) -> None:
    with serving(run, Path("/dev/full"), capsys) as (url, _, ended):
        with pytest.raises(error) as refused:
            ask(f"{url}/episodes/a/v1", agent, WORDS)
        assert refused.value.code == code
        with pytest.raises(DiskFullError, match=r"^disk full: .*writing full"):
            ended.result(timeout=60)
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"({code})")


async def test_log_probabilities_of_a_server_are_refused_before_it_is_asked() -> None:
    engine = ScriptedEngine({}, load_tokenizer("laptop_signalling"))
    agents = TrainedAgents({"ann": PolicyClient("p", engine, ChatCodec(), 1000, Sampling())}, 0, None)
    request = ChatRequest("ann", (ChatMessage("user", "?"),), logprobs=True)
    with pytest.raises(RefusedError, match="agent 'ann' has none") as refused:
        await agents.answer("a", request, Draft())
    assert refused.value.body["error"]["param"] == "logprobs" and not engine.requests


def test_an_episode_without_end_takes_bounded_memory() -> None:
    history = History()
    for i in range(3 * CALLS):
        history.add("ann", Completion((i,), (0.0,), str(i), "stop", "p", 0), ChatReply(str(i)))
    history.add("ann", Completion((9,), (0.0,), "9", "stop", "p", 0), ChatReply(str(2 * CALLS)))
    assert [each.text for each in history.completions["ann"]][-2:] == [str(3 * CALLS - 1), "9"]
    assert len(history.completions["ann"]) == len(history.sent) == CALLS
    assert list(history.sent.items())[-1] == (identity(ChatReply(str(2 * CALLS))), "9")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"run": None}, "^run is missing"),
        ({"port": "x"}, "^port must be"),
        ({"tools": "xml"}, "^tools must be"),
        ({"record": 123}, "^record must be null or a file, got 123"),
        ({"record": "/"}, "^record=/ cannot be written"),
        ({"checkpoint": "first"}, "no checkpoint 'first'"),
        ({"host": "0.0.0.0"}, "^host=0.0.0.0: everybody"),
    ],
)
def test_keys_that_are_wrong(run: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gateway(KEYS | {"run": str(run)} | keys, threading.Event())

"""The remote engine against a real server on this machine, with all that servers do wrong."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from traceback import format_exception
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.experience import Completion, Request, Sampling
from troupe.models.bases.loading import load_model
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.engines.base import (
    ContextExceededError,
    Engine,
    EngineClosedError,
    EngineError,
    RequestFailedError,
)
from troupe.rollout.engines.lockstep import inside_hold
from troupe.rollout.engines.remote.engine import MAX_QUOTE, RemoteEngine
from troupe.rollout.engines.remote.settings import RemoteSettings
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient

HELLO = [{"role": "system", "content": "be \ud83d brief"}, {"role": "user", "content": 'say "ä\n🙂"'}]
PROMPT = tuple(ChatCodec().apply_chat_template([{"role": "user", "content": "hi"}]))


def request(**changes: Any) -> Request:
    asked: dict[str, Any] = {"policy": "judge", "prompt_ids": PROMPT, "n": 1, "sampling": Sampling(), "seed": 7}
    return Request(**asked | changes)


def ask(url: str, *requests: Request, **settings: Any) -> tuple[list[list[Completion]], dict[str, float]]:
    """The answers to ``requests``, asked at once, and what was counted."""

    async def main() -> tuple[list[list[Completion]], dict[str, float]]:
        engine = RemoteEngine("judge", RemoteSettings(**{"url": url, "model": "m", "retries": 3} | settings))
        try:
            answers = list(await asyncio.gather(*map(engine.generate, requests)))
            return answers, {key.removeprefix("remote/judge/"): count for key, count in engine.drain().items()}
        finally:
            await engine.close()

    return asyncio.run(main())


# ---- what is asked, and what comes back -----------------------------------------------------------------------------


def test_the_codec_loses_nothing() -> None:
    codec = ChatCodec()
    ids = codec.apply_chat_template(HELLO, add_generation_prompt=True, return_dict=False)
    assert codec.messages(ids) == HELLO
    assert set(ids) <= set(range(codec.vocabulary))
    assert ids != codec.apply_chat_template([HELLO[0], {"role": "user", "content": 'say "ä\n🙂" '}])


def test_what_is_asked_arrives_and_the_answer_is_text_alone(chat_server: Any) -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=30, stop=("\n",))
    settings = {"prompt_price": 2.0, "completion_price": 10.0, "extra": {"top_k": 20}}
    (answers,), counts = ask(chat_server.url, request(n=3, sampling=sampling, seed=2**40 + 5), **settings)
    (body,) = chat_server.seen
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "n": 3,
        "seed": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 30,
        "stop": ["\n"],
        "top_k": 20,
    }
    assert answers == [Completion((), (), f"hi {5 + i}", "stop", "judge", 0) for i in range(3)]
    assert all(answer.text_only for answer in answers)
    assert chat_server.keys == [None]
    assert counts == {
        "requests": 1,
        "retries": 0,
        "prompt_tokens": 10,
        "completion_tokens": 6,
        "unmetered": 0,
        "empty": 0,
        "cost": pytest.approx((2 * 10 + 10 * 6) / 1e6),
        "faults/engine": 0,
    }


def test_it_is_an_engine(chat_server: Any) -> None:
    engine = RemoteEngine("judge", RemoteSettings(chat_server.url, "m"))
    assert isinstance(engine, Engine)
    asyncio.run(engine.close())


def test_a_server_that_ignores_n_is_asked_for_the_rest(chat_server: Any) -> None:
    chat_server.at_most = 1
    (answers,), counts = ask(chat_server.url, request(n=3))
    assert [answer.text for answer in answers] == ["hi 7", "hi 8", "hi 9"]
    assert [body["n"] for body in chat_server.seen] == [3, 2, 1]
    assert (counts["requests"], counts["retries"], counts["prompt_tokens"]) == (3, 0, 30)


def test_what_a_server_refuses_to_hear_is_left_out(chat_server: Any) -> None:
    chat_server.script = lambda messages, seed: "ok"
    extra = {"n": None, "max_tokens": None, "top_p": None, "max_completion_tokens": 64}
    (answers,), _ = ask(chat_server.url, request(n=2), extra=extra)
    assert len(answers) == 2
    assert [set(body) for body in chat_server.seen] == [
        {"model", "messages", "seed", "temperature", "max_completion_tokens"}
    ] * 2


def test_greedy_candidates_are_asked_for_once(chat_server: Any) -> None:
    (answers,), _ = ask(chat_server.url, request(n=4, sampling=Sampling(temperature=0)))
    assert [body["n"] for body in chat_server.seen] == [1]
    assert [answer.text for answer in answers] == ["hi 7"] * 4


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_server_that_adds_choices_gives_no_more_than_were_asked_for(
    chat_server: Any, fault: Callable[..., Any], temperature: float
) -> None:
    choices = [{"message": {"content": f"answer {i}"}, "finish_reason": "stop"} for i in range(5)]
    chat_server.faults.append(fault(text=json.dumps({"choices": choices})))
    (answers,), counts = ask(chat_server.url, request(n=3, sampling=Sampling(temperature=temperature)))
    rows = [0, 0, 0] if temperature == 0 else [0, 1, 2]
    assert [answer.text for answer in answers] == [f"answer {i}" for i in rows]
    assert counts["requests"] == 1


@pytest.mark.parametrize(
    ("choice", "text", "reason", "empty"),
    [
        ({"message": {"content": "R R"}, "finish_reason": "length"}, "R R", "length", 0),
        ({"message": {"content": None}, "finish_reason": "length"}, "", "length", 1),  # all of it went into thoughts
        ({"message": {"content": "R"}, "finish_reason": "eos"}, "R", "stop", 0),
        ({"message": {"content": "a\ud83db"}, "finish_reason": "stop"}, "a\ufffdb", "stop", 0),
    ],
)
def test_answers_of_many_kinds(
    chat_server: Any, fault: Callable[..., Any], choice: dict[str, Any], text: str, reason: str, empty: int
) -> None:
    chat_server.faults.append(fault(text=json.dumps({"choices": [choice]})))
    ((answer,),), counts = ask(chat_server.url, request())
    assert (answer.text, answer.finish_reason) == (text, reason)
    assert (counts["empty"], counts["unmetered"], counts["prompt_tokens"]) == (empty, 1, 0)


# ---- what servers do wrong ------------------------------------------------------------------------------------------


BAD = {
    "too many requests": [{"status": 429}, {"status": 429}],
    "an error of its own": [{"status": 500, "text": "<html>oh</html>"}],
    "an answer cut short": [{"text": '{"choices": []}', "cut": 5}],
    "not JSON": [{"text": "<html>please log in</html>"}],
    "no choices": [{"text": '{"choices": []}'}],
    "another kind of JSON": [{"text": "[1, 2]"}],
    "a slow answer": [{"delay_s": 0.6}],
    "all in a row": [{"status": 503}, {"text": "{}"}, {"status": 429}],
}


@pytest.mark.parametrize("what", BAD)
def test_what_went_wrong_is_asked_again(chat_server: Any, fault: Callable[..., Any], what: str) -> None:
    chat_server.faults.extend(fault(**each) for each in BAD[what])
    ((answer,),), counts = ask(chat_server.url, request(), timeout_s=0.3)
    assert answer.text == "hi 7"
    assert counts["requests"] == len(chat_server.seen) == 1 + len(BAD[what])
    assert counts["retries"] == len(BAD[what])
    assert all(body == chat_server.seen[0] for body in chat_server.seen)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (
            {"status": 429, "text": '{"error": {"message": "slow down"}}'},
            r"HTTP 429: .*down.* \(after 1 retries\)$",
        ),
        ({"status": 502, "text": "<html>oh</html>"}, r"HTTP 502: <html>oh</html> \(after 1 retries\)$"),
        pytest.param({"text": "[" * 100_000}, r"no chat completion: \[\[\[", id="nested beyond what can be read"),
        ({"text": "<html>please log in</html>"}, r"no chat completion: <html>please .*\(after 1 retries\)"),
        ({"text": '{"choices": []}'}, r"no choices that can be read: .*\(after 1 retries\)"),
        ({"delay_s": 0.5}, r"Request timed out\..*\(after 1 retries\)"),
    ],
    ids=str,
)
@pytest.mark.slow
def test_a_server_that_stays_away_ends_the_run(
    chat_server: Any, fault: Callable[..., Any], what: dict[str, Any], expected: str
) -> None:
    chat_server.faults.extend(fault(**what) for _ in range(2))
    with pytest.raises(EngineError, match=rf"policy 'judge' at {chat_server.url}: (?s:.*){expected}"):
        ask(chat_server.url, request(), retries=1, timeout_s=0.2)
    assert len(chat_server.seen) == 2


def test_nobody_there() -> None:
    with pytest.raises(EngineError, match=r"policy 'judge' at http://127\.0\.0\.1:9/v1: Connection error.*failed"):
        ask("http://127.0.0.1:9/v1", request(), retries=0)


def test_a_refusal_ends_the_run_at_once(chat_server: Any, fault: Callable[..., Any]) -> None:
    body = json.dumps({"error": {"message": "no model m; " + "x" * 2000}})
    chat_server.faults.append(fault(status=404, text=body))
    with pytest.raises(EngineError, match=r"HTTP 404: .*no model m") as raised:
        ask(chat_server.url, request())
    assert len(chat_server.seen) == 1 and len(str(raised.value)) < MAX_QUOTE + 100


def test_the_key_is_sent_and_never_shown(chat_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chat_server.key = "sesame-right"
    monkeypatch.setenv("JUDGE_KEY", "sesame-right")
    ask(chat_server.url, request(), key_env="JUDGE_KEY")
    monkeypatch.setenv("JUDGE_KEY", "sesame-wrong")
    with pytest.raises(EngineError, match=r"HTTP 401: .*no such key: Bearer KEY") as raised:
        ask(chat_server.url, request(), key_env="JUDGE_KEY")
    assert "sesame" not in "".join(format_exception(raised.value))  # the server's answer has it
    assert chat_server.keys == ["Bearer sesame-right", "Bearer sesame-wrong"]
    monkeypatch.delenv("JUDGE_KEY")
    with pytest.raises(ValueError, match=r"policies\.judge\.remote\.key_env=JUDGE_KEY: the environment holds no such"):
        ask(chat_server.url, request(), key_env="JUDGE_KEY")
    with pytest.raises(ValueError, match=r"policies\.judge\.remote\.key_env: the environment holds no such"):
        ask(chat_server.url, request(), key_env="s3cr3t0123456789")


def test_without_the_client(chat_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ValueError, match=r"policies\.judge\.tuning=remote needs .*: pip install 'troupe-rl\[remote\]'"):
        ask(chat_server.url, request())


def test_a_stranger_gets_no_key_of_openais(chat_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not for you")
    ask(chat_server.url, request())
    assert chat_server.keys == [None]


# ---- limits ---------------------------------------------------------------------------------------------------------


def test_no_more_than_so_many_at_once(chat_server: Any) -> None:
    chat_server.delay_s = lambda last: 0.02
    requests = [request(seed=i) for i in range(9)]
    answers, _ = ask(chat_server.url, *requests, concurrency=3)
    assert [answer.text for (answer,) in answers] == [f"hi {i}" for i in range(9)]
    assert chat_server.most == 3


def test_no_more_than_so_many_a_minute(chat_server: Any, fault: Callable[..., Any]) -> None:
    chat_server.faults.append(fault(status=429))
    ask(chat_server.url, *(request(seed=i) for i in range(3)), requests_per_minute=240)
    assert len(chat_server.times) == 4  # the repeated one waits, too
    assert all(later - one > 0.1 for one, later in pairwise(chat_server.times))


def test_a_deadline(chat_server: Any) -> None:
    chat_server.delay_s = lambda last: 0.5
    with pytest.raises(TimeoutError, match=r"policy 'judge', request .*: the deadline has passed"):
        ask(chat_server.url, request(deadline=time.monotonic() + 0.05))


async def test_closing_tells_who_waits(chat_server: Any) -> None:
    chat_server.delay_s = lambda last: 0.3
    engine = RemoteEngine("judge", RemoteSettings(chat_server.url, "m"))
    waiting = asyncio.create_task(engine.generate(request()))
    await asyncio.sleep(0.1)
    await engine.close()
    await engine.close()
    for late in (waiting, engine.generate(request())):
        with pytest.raises(EngineClosedError):
            await late


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"policy": "other"}, "no policy 'other' in this engine; it has judge"),
        ({"prompt_ids": ()}, "policy 'judge'.*the prompt is empty"),
        ({"sampling": Sampling(top_k=5)}, "a remote server takes no top_k, got 5"),
    ],
    ids=str,
)
def test_requests_that_cannot_be_asked(chat_server: Any, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        ask(chat_server.url, request(**changes))


TOO_LONG = {
    "OpenAI": (
        400,
        {"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages resulted in "
                   "9000 tokens.", "type": "invalid_request_error", "code": "context_length_exceeded"}},
    ),
    "vLLM": (400, {"error": {"message": "You passed 1015 input tokens and requested 10 output tokens. However, the "
                             "model's context length is only 1024 tokens", "param": "input_tokens", "code": 400}}),
    "vLLM before 0.9": (400, {"object": "error", "message": "max_tokens must be at least 1, got -186.", "code": 400}),
    "llama.cpp": (400, {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 4390}}),
    "a proxy": (413, {"detail": "request entity too large"}),
}  # fmt: skip


@pytest.mark.parametrize("server", TOO_LONG)
async def test_a_prompt_that_is_too_long_is_no_fault(chat_server: Any, fault: Callable[..., Any], server: str) -> None:
    status, body = TOO_LONG[server]
    chat_server.faults.append(fault(status, json.dumps(body)))
    engine = RemoteEngine("judge", RemoteSettings(chat_server.url, "m", retries=0))
    with pytest.raises(ContextExceededError, match=rf"policy 'judge' at .*: HTTP {status}: "):
        await engine.generate(request())
    assert engine.drain()["faults/engine"] == 0
    await engine.close()


async def test_another_refusal_is_one(chat_server: Any, fault: Callable[..., Any]) -> None:
    chat_server.faults.append(fault(400, json.dumps({"error": {"message": "temperature must be at most 2"}})))
    engine = RemoteEngine("judge", RemoteSettings(chat_server.url, "m", retries=0))
    with pytest.raises(RequestFailedError, match="temperature must be") as raised:
        await engine.generate(request())
    assert not isinstance(raised.value, ContextExceededError) and engine.drain()["faults/engine"] == 1
    await engine.close()


async def test_weights_are_refused(chat_server: Any) -> None:
    engine = RemoteEngine("judge", RemoteSettings(chat_server.url, "m"))
    with pytest.raises(ValueError, match="policy 'judge' is remote: it is never trained"):
        await engine.load("judge", {}, 1)
    await engine.close()


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"url": "localhost:8000"}, "url must be http"),
        ({"url": "https://me:s3cr3t@host/v1"}, "url holds a user or a password"),
        ({"url": "https://host/a-s3cr3t-in-the-environment/v1"}, "url holds a secret"),
        ({"concurrency": 0}, "concurrency must be a whole number of at least 1, got 0"),
        ({"retries": 1.5}, r"retries must be a whole number of at least 0, got 1\.5"),
        ({"timeout_s": 0}, "timeout_s must be above 0, got 0"),
        ({"requests_per_minute": -1}, "requests_per_minute must be above 0, got -1"),
        ({"prompt_price": 1.0}, r"prompt_price and completion_price: .*got \[1\.0, None\]"),
        ({"url": "https://host/v1?api-key=s3cr3t"}, "url holds a query"),
        ({"url": "https://host/v1#s3cr3t"}, "url holds a query"),
        ({"extra": {"api_key": "s3cr3t"}}, r"extra\.api_key holds a secret, .* use key_env"),
        ({"extra": {"headers": [{"Authorization": "Bearer s3cr3t"}]}}, r"extra\.headers\.0\.Authorization holds"),
        ({"extra": {"auth": {"accessToken": "s3cr3t"}}}, r"extra\.auth\.accessToken holds a secret"),
        ({"extra": {"client_secret": "s3cr3t"}}, r"extra\.client_secret holds a secret"),
        ({"extra": {"user": "sk-s3cr3t0123456789abcdef"}}, r"extra\.user holds a secret"),
        ({"extra": {"metadata": {"note": "a-s3cr3t-in-the-environment"}}}, r"extra\.metadata\.note holds a secret"),
        ({"key_env": "sk-s3cr3t"}, "key_env must be the name of an environment variable"),
        ({"key_env": "hf_s3cr3t0123456789abc"}, "key_env holds a secret"),
        ({"extra": {"n": 2}}, r"extra\.n: Troupe sends n itself"),
        ({"extra": {"messages": None}}, r"extra\.messages: Troupe sends messages itself"),
        ({"extra": "top_k"}, r"extra must hold keys, got 'top_k'"),
    ],
    ids=str,
)
def test_settings_that_cannot_be(wrong: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "a-s3cr3t-in-the-environment")
    with pytest.raises(ValueError, match=expected) as raised:
        RemoteSettings(**{"url": "http://host/v1", "model": "m"} | wrong)
    assert "s3cr3t" not in str(raised.value)


def test_what_is_no_secret_may_be_sent_along() -> None:
    extra = {
        "stop_token_ids": [1],
        "skip_special_tokens": False,
        "prompt_cache_key": "board",
        "max_completion_tokens": 64,
        "user": "sk",
        "chat_template_kwargs": {"enable_thinking": False, "tokenizer": "x", "monkey": "y"},
        "api_key": None,
    }
    assert RemoteSettings("http://host/v1", "m", extra=extra).extra == extra


# ---- beside an engine in lockstep -----------------------------------------------------------------------------------


def test_who_is_quicker_does_not_change_the_rounds_of_others(chat_server: Any, words: PreTrainedTokenizerFast) -> None:
    """Two conversations ask the remote policy and then the local one; whatever the server's pace, one round."""
    model, sizes = load_model("laptop"), []

    class Watched(TorchEngine):
        async def serve_round(self) -> None:
            sizes.append(len(self._arrived))
            await super().serve_round()

    async def main() -> None:
        local = Watched({"plan": model}, words)
        remote = RemoteEngine("judge", RemoteSettings(chat_server.url, "m"))
        judge = PolicyClient("judge", remote, ChatCodec(), 10**9, Sampling())
        plan = tuple(words.encode("goal", add_special_tokens=False))

        async def talk(name: str) -> None:
            prompt = judge.encode("tool", name, [{"role": "user", "content": name}])
            await judge.generate(prompt, 1, 0, (name,))
            assert not inside_hold()
            await local.generate(Request("plan", plan, 1, Sampling(max_tokens=2), 0, (name,)))

        await asyncio.gather(talk("slow"), talk("quick"))
        await local.close()
        await remote.close()

    chat_server.delay_s = lambda last: 0.3 * (last == "slow")
    asyncio.run(main())
    assert sizes == [2]

"""The scripted engine: what is written is what is said."""

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.experience import Request, Sampling
from troupe.rollout.engines.base import Engine
from troupe.rollout.scripted import MissingAnswerError, ScriptedEngine


def request(words: PreTrainedTokenizerFast, prompt: str, n: int = 2, max_tokens: int = 8) -> Request:
    ids = tuple(words.encode(f"{prompt} <answer>", add_special_tokens=False))
    return Request("p", ids, n, Sampling(max_tokens=max_tokens), seed=7)


async def test_a_callable_is_given_prompt_row_and_seed(words: PreTrainedTokenizerFast) -> None:
    heard = []

    def script(prompt: str, row: int, seed: int) -> str:
        heard.append((prompt, row, seed))
        return ["U", "box 2,2 D"][row]

    engine = ScriptedEngine(script, words)
    first, second = await engine.generate(request(words, "tool at 1,1"))
    assert heard == [("tool at 1,1", 0, 7), ("tool at 1,1", 1, 7)]
    assert (first.text, second.text) == ("U", "box 2,2 D")
    assert words.convert_ids_to_tokens(list(second.token_ids)) == ["box", "2,2", "D", "<eos>"]
    assert second.logprobs == (0.0,) * 4
    assert (second.finish_reason, second.policy, second.version) == ("stop", "p", 0)
    assert engine.requests == [request(words, "tool at 1,1")]


async def test_a_mapping_answers_by_prompt_and_row(words: PreTrainedTokenizerFast) -> None:
    engine = ScriptedEngine({"tool": "U", "plan": ["L", "R"]}, words)
    assert [c.text for c in await engine.generate(request(words, "tool"))] == ["U", "U"]
    assert [c.text for c in await engine.generate(request(words, "plan"))] == ["L", "R"]
    with pytest.raises(MissingAnswerError, match="'solo'"):
        await engine.generate(request(words, "solo"))
    with pytest.raises(MissingAnswerError, match="row 2"):
        await engine.generate(request(words, "plan", n=3))


async def test_an_answer_too_long_is_cut(words: PreTrainedTokenizerFast) -> None:
    engine = ScriptedEngine({"plan": "U D L R"}, words)
    (whole,) = await engine.generate(request(words, "plan", n=1, max_tokens=5))
    (endless,) = await engine.generate(request(words, "plan", n=1, max_tokens=4))
    (cut,) = await engine.generate(request(words, "plan", n=1, max_tokens=3))
    assert (whole.text, whole.finish_reason, len(whole.token_ids)) == ("U D L R", "stop", 5)
    assert (endless.text, endless.finish_reason, len(endless.token_ids)) == ("U D L R", "length", 4)
    assert (cut.text, cut.finish_reason, len(cut.token_ids)) == ("U D L", "length", 3)


async def test_it_is_an_engine_whose_loads_set_versions(words: PreTrainedTokenizerFast) -> None:
    engine = ScriptedEngine({"plan": "U"}, words)
    assert isinstance(engine, Engine)
    await engine.load("p", {}, 3)
    assert [c.version for c in await engine.generate(request(words, "plan"))] == [3, 3]
    for method in (engine.sleep, engine.wake, engine.close):
        await method()

"""The decoding loop: prompts read once and in parts, and the ends of completions."""

from __future__ import annotations

import copy
from collections import Counter

import pytest

from troupe.experience import Request
from troupe.rollout.engines.torch import decoding
from troupe.rollout.engines.torch.decoding import _chunks, _group_width
from troupe.rollout.engines.torch.engine import TorchEngine

from .conftest import EOS, all_of, build, decoder, request, worst


async def test_prompts_are_read_in_parts_that_fit_the_budgets(tokenizer, monkeypatch):
    assert list(_chunks([4, 4, 5, 9, 90], vocabulary=100)) == [(0, 5)]
    monkeypatch.setattr(decoding, "PREFILL_TOKENS", 16)
    assert list(_chunks([4, 4, 5, 9, 90], vocabulary=100)) == [(0, 3), (3, 4), (4, 5)]
    monkeypatch.setattr(decoding, "PREFILL_LOGITS", 200)
    assert list(_chunks([4, 4, 5, 9, 90], vocabulary=100)) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    model = build()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer)
    requests = [request(length, seed=length) for length in (4, 4, 5, 9, 40)]
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4


def test_groups_are_split_where_padding_would_cost_more():
    assert _group_width([4, 4, 4]) == 4
    assert _group_width([64, 1, 1, 1, 1, 1, 1, 1, 1, 1]) == 1
    assert _group_width([200]) == 200


async def test_a_prompt_is_read_once_and_finished_rows_leave(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    requests = [request(length, seed=length, n=5, max_tokens=16) for length in (4, 9, 9, 23)]
    again = Request("p", requests[0].prompt_ids, 5, requests[0].sampling, seed=99)
    nodes = await all_of(engine, [*requests, again])
    assert decoder(engine).forwarded["prompt"] == 4 + 9 + 23
    # The last token of a completion is never fed back, and no row is fed after its end.
    assert decoder(engine).forwarded["completion"] == sum(len(c.token_ids) - 1 for node in nodes for c in node)


async def test_end_of_sequence_and_max_tokens(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    nodes = await all_of(engine, [request(5, seed=i, n=6, max_tokens=20) for i in range(12)])
    completions = [c for node in nodes for c in node]
    assert Counter(c.finish_reason for c in completions).keys() == {"stop", "length"}
    for c in completions:
        assert EOS not in c.token_ids[:-1]
        assert (c.finish_reason == "stop") == (c.token_ids[-1] == EOS)
        assert len(c.token_ids) == 20 or c.finish_reason == "stop"
        assert c.text == " ".join(f"w{i}" for i in c.token_ids if i > EOS)


async def test_the_generation_config_may_name_several_ends(tokenizer):
    model = build()
    model.generation_config.eos_token_id = [5, 6, 7, 8]
    nodes = await all_of(TorchEngine({"p": model}, tokenizer), [request(5, seed=i, max_tokens=40) for i in range(8)])
    stopped = [c for node in nodes for c in node if c.finish_reason == "stop"]
    assert {c.token_ids[-1] for c in stopped} > {EOS}
    assert all(c.text == tokenizer.decode(c.token_ids[:-1], skip_special_tokens=True) for c in stopped)


@pytest.mark.parametrize("stop", ["w7", "7 w", "w12 w"])
async def test_stop_strings_end_the_completion_and_are_cut_off(stop, tokenizer):
    engine = TorchEngine({"p": build(eos_token_id=None)}, tokenizer)
    free = [request(5, seed=i, n=8, max_tokens=40) for i in range(6)]
    bound = [request(5, seed=i, n=8, max_tokens=40, stop=("nothing", stop)) for i in range(6)]
    stopped = 0
    for node, without in zip(await all_of(engine, bound), await all_of(engine, free), strict=True):
        for c, whole in zip(node, without, strict=True):
            assert c.token_ids == whole.token_ids[: len(c.token_ids)]
            assert c.text == whole.text.split(stop)[0]
            if stop in whole.text:
                stopped += 1
                assert c.finish_reason == "stop"
                assert stop in tokenizer.decode(c.token_ids) and stop not in tokenizer.decode(c.token_ids[:-1])
    assert stopped


async def test_of_several_stop_strings_the_first_in_the_text_cuts(tokenizer):
    engine = TorchEngine({"p": build(eos_token_id=None)}, tokenizer)
    (node,) = await all_of(engine, [request(5, n=12, max_tokens=40, stop=("3", "w3"))])
    cut = [c for c in node if c.finish_reason == "stop" and tokenizer.decode(c.token_ids[-1:]).startswith("w3")]
    assert cut and all(c.text == tokenizer.decode(c.token_ids[:-1]) + " " * (len(c.token_ids) > 1) for c in cut)

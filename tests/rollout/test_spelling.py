"""Tokens as texts, in a completion and while it is written."""

import asyncio

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from troupe.experience import Completion, Sampling
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.spelling import spelled, telling

Heard = list[tuple[int, str, float]]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A token per byte."""
    made = Tokenizer(models.BPE({sign: i for i, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def test_a_character_of_several_tokens_is_in_the_last(tokenizer: Tokenizer) -> None:
    ids = tuple(tokenizer.encode("a é😀").ids)
    completion = Completion(ids, tuple(-float(i) for i in range(len(ids))), "a é😀", "length", "p", 0)
    texts, logprobs = zip(*spelled(tokenizer, completion, ""), strict=True)
    assert texts == ("a", " ", "", "é", "", "", "", "😀") and logprobs == completion.logprobs
    assert spelled(tokenizer, completion, "So: ")[0][0] == "So: a"


async def test_what_begins_anew_is_told_anew(tokenizer: Tokenizer) -> None:
    heard: Heard = []
    on_token = telling(tokenizer, lambda *token: heard.append(token), "So: ")
    for word in ("éa", "bc"):
        for place, token in enumerate(tokenizer.encode(word).ids):
            await asyncio.to_thread(on_token, place, token, -0.5)
    await asyncio.sleep(0)
    texts = [(place, text) for place, text, _ in heard]
    assert texts == [(0, "So: "), (1, "é"), (2, "a"), (0, "So: b"), (1, "c")]


async def test_an_engine_tells_each_token_before_the_completion() -> None:
    tokenizer = load_tokenizer("laptop_signalling")
    engine = TorchEngine({"p": load_model("laptop_signalling").eval()}, tokenizer, lockstep=False)
    client = PolicyClient("p", engine, tokenizer, 512, Sampling(max_tokens=10))
    prompt = tuple(tokenizer.encode("colours red blue before none guess none"))
    tellings: list[Heard] = [[] for _ in range(3)]
    generated = (client.generate(prompt, 1, i, (i,), lambda *t, i=i: tellings[i].append(t)) for i in range(3))  # type: ignore[misc]
    for heard, (completion,) in zip(tellings, await asyncio.gather(*generated), strict=True):
        assert [place for place, _, _ in heard] == list(range(len(completion.token_ids)))
        assert "".join(text for _, text, _ in heard) == completion.text
        assert tuple(logprob for _, _, logprob in heard) == completion.logprobs
        assert client.told(completion, 7, True).tokens == tuple((text, logprob) for _, text, logprob in heard)
    await engine.close()

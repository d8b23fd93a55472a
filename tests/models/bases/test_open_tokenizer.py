"""A tokenizer that writes any text: the prompts of every world, and what no world says."""

from random import Random

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.testing import GARBAGE
from troupe.models.bases.loading import load_tokenizer
from troupe.models.bases.open_tokenizer import ANSWER, EOS, SMALLEST, train_tokenizer
from troupe.setup.instantiation import build_world

from ...worlds import OF_EACH_CLASS, env_config

WORDS = ["free monday friday tried none", "free sunday tried monday", "monday friday"] * 20


@pytest.fixture(scope="module", params=["pairs", "bytes"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return train_tokenizer(WORDS, 300 if request.param == "pairs" else SMALLEST)


def decoded(tokenizer: PreTrainedTokenizerFast, text: str) -> str:
    return tokenizer.decode(tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("full", [False, True], ids=["default", "full"])
@pytest.mark.parametrize("name", OF_EACH_CLASS)
async def test_the_prompts_of_every_world_come_back(tokenizer: PreTrainedTokenizerFast, name: str, full: bool) -> None:
    config = env_config(name)
    if full and "wording" not in config:
        pytest.skip(f"{name} has one wording")
    if "data" in config or config.get("train"):
        pytest.skip(f"{name} needs data")
    world = build_world("env", config | ({"wording": "full"} if full else {}))
    rng = Random(0)
    try:
        await world.open()
        for task in world.tasks("train", 3, 0):
            world.reset(task)
            while acting := world.next_agents():
                prompts = [list(world.observe(agent)) for agent in acting]
                for messages in prompts:
                    text = "".join(f"<|{message['role']}|>{message['content']}" for message in messages) + ANSWER
                    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
                    assert tokenizer.decode(ids) == text
                actions = {agent: world.demonstration(agent, rng) for agent in acting}
                assert all(decoded(tokenizer, action) == action for action in actions.values())
                await world.step(actions)
    finally:
        await world.close()


@pytest.mark.parametrize("text", [text for text in GARBAGE if "\ud800" not in text], ids=lambda text: repr(text[:8]))
def test_any_text_comes_back(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert decoded(tokenizer, text) == text
    assert tokenizer.unk_token_id is None


def test_frequent_words_are_one_token_and_numbers_are_digits() -> None:
    tokenizer = train_tokenizer(WORDS, 300)
    pieces = [tokenizer.decode(token) for token in tokenizer.encode("monday friday 2024")]
    assert pieces == ["monday", " friday", " ", "2", "0", "2", "4"]


def test_the_smallest_vocabulary_is_the_bytes() -> None:
    tokenizer = train_tokenizer(WORDS, SMALLEST)
    assert len(tokenizer) == SMALLEST
    assert len(tokenizer.encode("Grüße", add_special_tokens=False)) == len("Grüße".encode())


def test_it_is_saved_as_transformers_loads_it(tmp_path) -> None:
    tokenizer = train_tokenizer(WORDS, 300)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    chat = [{"role": "system", "content": "ann"}, {"role": "user", "content": "free  monday\n"}]
    for one in (tokenizer, loaded):
        assert one.decode(one.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)) == (
            f"<|system|>ann<|user|>free  monday\n{ANSWER}"
        )
    assert loaded.eos_token == EOS and loaded.get_vocab() == tokenizer.get_vocab()

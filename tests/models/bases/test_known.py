"""What a plan knows of base models without transformers is what transformers makes of them."""

import pytest

from troupe.experience import Sampling
from troupe.models.bases.base_models import SHIPPED, base_path
from troupe.models.bases.known import PUBLISHED, ShippedTokenizer, shipped_shape
from troupe.models.bases.loading import load_shape, load_tokenizer
from troupe.rollout.policy_client import PolicyClient, PromptError


def test_the_published_shapes_are_those_of_the_papers_models() -> None:
    for base, heads, tied in (("Qwen/Qwen3-1.7B", 16, True), ("Qwen/Qwen3-8B", 32, False)):
        shape = PUBLISHED[base]
        assert (shape.num_attention_heads, shape.tie_word_embeddings) == (heads, tied)


@pytest.mark.parametrize("base", SHIPPED)
def test_a_shipped_shape_is_that_of_its_configuration(base: str) -> None:
    shape, whole = shipped_shape(base), load_shape(base)
    assert shape is not None and vars(shape) == {name: getattr(whole, name) for name in vars(shape)}
    assert set(getattr(whole, "layer_types", ["full_attention"])) == {"full_attention"}  # as an outline has them


@pytest.mark.parametrize("base", SHIPPED)
def test_a_shipped_tokenizer_writes_and_reads_as_transformers_does(base: str) -> None:
    own, whole = ShippedTokenizer(base_path(base)), load_tokenizer(base)
    words = sorted(whole.get_vocab())
    text = " ".join([*words, "zzzz <eos>"])
    assert own.encode(text) == whole.encode(text) and own.encode("", add_special_tokens=True) == whole.encode("")
    ids = own.encode(text, add_special_tokens=False)
    assert ids == whole.encode(text, add_special_tokens=False) and own.decode(ids) == whole.decode(ids)
    for name in ("unk_token_id", "eos_token_id", "special_tokens_map", "all_special_ids", "all_special_tokens"):
        assert getattr(own, name) == getattr(whole, name), name
    assert len(own) == len(whole) and own.get_vocab() == whole.get_vocab()
    assert own.get_chat_template() == whole.get_chat_template() and own.get_chat_template("x") == "x"
    assert {str(each) for each in own.added_tokens_decoder.values()} == {
        str(each) for each in whole.added_tokens_decoder.values()
    }
    plain = [word for word in words if word not in whole.all_special_tokens]
    clients = [PolicyClient("p", None, each, 512, Sampling(max_tokens=8)) for each in (own, whole)]  # type: ignore[arg-type]
    message = [{"role": "user", "content": " ".join(plain[:40])}]
    first, second = (client.encode("a", "task", message) for client in clients)
    assert first == second
    refusals = []
    for client in clients:
        with pytest.raises(PromptError) as refusal:
            client.encode("a", "task", [{"role": "user", "content": "zzzz"}])
        refusals.append(str(refusal.value))
    assert refusals[0] == refusals[1]

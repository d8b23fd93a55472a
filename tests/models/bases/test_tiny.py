"""Tiny models and their word-level tokenizers."""

from math import dist

import torch
from torch.nn.functional import cosine_similarity

from troupe.models.bases.tiny import ANSWER, EOS, PAD, UNKNOWN, build_model, build_tokenizer

WORDS = ["go", "left", "go", "2,1"]
CELLS = [f"{row},{column}" for row in range(6) for column in range(6)]


def test_one_token_per_word_in_their_order() -> None:
    tokenizer = build_tokenizer(WORDS)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [PAD, EOS, UNKNOWN, ANSWER, "go", "left", "2,1"]
    assert tokenizer.decode(tokenizer.encode("left  2,1 go")) == "left 2,1 go"
    assert tokenizer.encode("right") == [tokenizer.unk_token_id]


def test_a_prompt_ends_with_the_mark_of_an_answer() -> None:
    messages = [{"role": "system", "content": "go left"}, {"role": "user", "content": "2,1"}]
    ids = build_tokenizer(WORDS).apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert build_tokenizer(WORDS).convert_ids_to_tokens(ids) == ["go", "left", "2,1", ANSWER]


def test_a_seed_fixes_the_weights() -> None:
    tokenizer = build_tokenizer(CELLS)
    one, same, other = (build_model(tokenizer, hidden=16, layers=1, heads=2, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)
    assert one.lm_head.weight is one.get_input_embeddings().weight  # tied
    assert (one.config.vocab_size, one.config.num_key_value_heads) == (len(tokenizer), 1)


def test_neighbouring_cells_begin_with_similar_embeddings() -> None:
    tokenizer = build_tokenizer(CELLS)
    weight = build_model(tokenizer, hidden=64, layers=1, heads=2, seed=0).get_input_embeddings().weight
    vectors = {cell: weight[tokenizer.convert_tokens_to_ids(cell)] for cell in CELLS}
    near, far = [], []
    for one in CELLS:
        for other in CELLS:
            steps = dist(*(tuple(map(int, cell.split(","))) for cell in (one, other)))
            if steps:
                similarity = cosine_similarity(vectors[one], vectors[other], dim=0).item()
                (near if steps == 1 else far).append(similarity)
    assert sum(near) / len(near) > sum(far) / len(far) + 0.05

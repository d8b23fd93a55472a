"""The shapes of the papers' models, known without the network."""

from troupe.models.bases.hub import published_config


def test_the_published_shapes_are_those_of_the_papers_models() -> None:
    for base, heads, tied in (("Qwen/Qwen3-1.7B", 16, True), ("Qwen/Qwen3-8B", 32, False)):
        shape = published_config(base)
        assert shape is not None and (shape.num_attention_heads, shape.tie_word_embeddings) == (heads, tied)
    assert published_config("laptop") is None

"""What a plan knows of published base models without their files."""

from transformers import AutoConfig

from troupe.models.bases.known import PUBLISHED
from troupe.setup.checks import meta_model


def test_the_published_shapes_are_those_of_the_papers_models() -> None:
    for base, heads, tied in (("Qwen/Qwen3-1.7B", 16, True), ("Qwen/Qwen3-8B", 32, False)):
        shape = PUBLISHED[base]
        assert (shape["num_attention_heads"], shape["tie_word_embeddings"]) == (heads, tied)


def test_every_published_shape_makes_a_model() -> None:
    for known in PUBLISHED.values():
        shape = AutoConfig.for_model(**known | {"num_hidden_layers": 1})
        assert sum(p.numel() for p in meta_model(shape).parameters()) > known["vocab_size"] * known["hidden_size"]

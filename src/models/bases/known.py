"""Base models that Troupe knows, as far as a plan needs them: their sizes, and tokenizers that write prompts, without
transformers, which takes a second to import.  Tests compare them with what transformers makes of their files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from ...rollout.engines.outline import Shape
from .base_models import MADE, SHIPPED, base_path


def _qwen3(hidden: int, inner: int, layers: int, heads: int, *, tied: bool) -> Shape:
    return Shape(
        model_type="qwen3",
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=tied,
    )


def _coder(hidden: int, inner: int, layers: int, heads: int) -> Shape:
    return Shape(
        model_type="qwen2",
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
    )


_SMOLLM2 = Shape(
    model_type="llama",
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
    rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    tie_word_embeddings=True,
)

PUBLISHED = {
    **dict.fromkeys(("smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"), _SMOLLM2),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": _coder(896, 4864, 24, 14),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": _coder(1536, 8960, 28, 12),
    "Qwen/Qwen2.5-Coder-3B": _coder(2048, 11_008, 36, 16),
    "Qwen/Qwen3-1.7B": _qwen3(2048, 6144, 28, 16, tied=True),
    "Qwen/Qwen3-8B": _qwen3(4096, 12_288, 36, 32, tied=False),
}
"""The published shapes of models that a dry run knows without the network."""
PUBLISHED |= {name: PUBLISHED[hub] for name, hub in MADE.items()}


def shipped_shape(base: str) -> Shape | None:
    """The shape of one of :data:`.base_models.SHIPPED`, whose files are checked; None for other models."""
    if base not in SHIPPED:
        return None
    config = json.loads((base_path(base) / "config.json").read_text())
    return Shape(**{each.name: config.get(each.name) for each in fields(Shape)})


class ShippedTokenizer:
    """Of a shipped base model in ``folder``: what writes and reads prompts of a transformers' tokenizer."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        config = json.loads((folder / "tokenizer_config.json").read_text())
        self._template = (folder / "chat_template.jinja").read_text()
        self.special_tokens_map = {
            name: config[name] for name in ("eos_token", "unk_token", "pad_token") if config.get(name)
        }
        self.all_special_tokens = [*self.special_tokens_map.values(), *config["extra_special_tokens"]]

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    @cached_property
    def all_special_ids(self) -> list[int | None]:
        return [self._tokenizer.token_to_id(token) for token in self.all_special_tokens]

    @cached_property
    def unk_token_id(self) -> int | None:
        return self._tokenizer.token_to_id(self.special_tokens_map.get("unk_token", ""))

    @cached_property
    def eos_token_id(self) -> int | None:
        return self._tokenizer.token_to_id(self.special_tokens_map["eos_token"])

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        return self._tokenizer.get_added_tokens_decoder()

    def get_vocab(self) -> dict[str, int]:
        return self._tokenizer.get_vocab()

    def get_chat_template(self, template: str | None = None, tools: Sequence[object] | None = None) -> str:
        return template or self._template

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

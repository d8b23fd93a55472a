"""Models that Troupe knows, as far as a plan needs them: their sizes and their layers, without weights and without
transformers, whose models take seconds to import.  Tests compare them with transformers' own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes in the configuration of a model without sliding windows, by transformers' names."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    rope_parameters: dict[str, Any]
    tie_word_embeddings: bool
    head_dim: int | None = None

    @property
    def known(self) -> dict[str, Any]:
        """The arguments of transformers' configuration."""
        return {name: value for name, value in vars(self).items() if value is not None}


class Outline(nn.Module):
    """The layers of a model of ``shape``, by the names that they have in transformers, on torch's meta device."""

    biased = normed = False
    """Whether queries, keys and values have a bias, and queries and keys a norm."""
    _no_split_modules = ("_Block",)

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.config = shape
        self.model = nn.Module()
        self.model.embed_tokens = words = _on_meta(nn.Embedding, shape.vocab_size, shape.hidden_size)
        self.model.layers = nn.ModuleList(
            _Block(shape, self.biased, self.normed) for _ in range(shape.num_hidden_layers)
        )
        self.model.norm = _norm(shape.hidden_size)
        self.lm_head = _linear(shape.hidden_size, shape.vocab_size)
        if shape.tie_word_embeddings:
            self.lm_head.weight = words.weight

    @property
    def base_model(self) -> nn.Module:
        return self.model

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head


class LlamaForCausalLM(Outline):
    pass


class Qwen2ForCausalLM(Outline):
    biased = True


class Qwen3ForCausalLM(Outline):
    normed = True


KINDS = {"llama": LlamaForCausalLM, "qwen2": Qwen2ForCausalLM, "qwen3": Qwen3ForCausalLM}
"""By ``model_type``; their names are in messages."""


class _Block(nn.Module):
    def __init__(self, shape: Shape, biased: bool, normed: bool) -> None:
        super().__init__()
        width, inner = shape.hidden_size, shape.intermediate_size
        head = shape.head_dim or width // shape.num_attention_heads
        queries, keys = head * shape.num_attention_heads, head * shape.num_key_value_heads
        self.self_attn, self.mlp = nn.Module(), nn.Module()
        self.self_attn.q_proj = _linear(width, queries, bias=biased)
        self.self_attn.k_proj = _linear(width, keys, bias=biased)
        self.self_attn.v_proj = _linear(width, keys, bias=biased)
        self.self_attn.o_proj = _linear(queries, width)
        if normed:
            self.self_attn.q_norm, self.self_attn.k_norm = _norm(head), _norm(head)
        self.mlp.gate_proj, self.mlp.up_proj = _linear(width, inner), _linear(width, inner)
        self.mlp.down_proj = _linear(inner, width)
        self.input_layernorm, self.post_attention_layernorm = _norm(width), _norm(width)


def _on_meta(kind: type[nn.Module], *sizes: int, **options: bool) -> Any:
    """Without initial values, the code for which takes a second to import on this device."""
    undrawn = type(kind.__name__, (kind,), {"reset_parameters": lambda self: None})
    return undrawn(*sizes, device="meta", **options)


def _linear(inputs: int, outputs: int, *, bias: bool = False) -> Any:
    return _on_meta(nn.Linear, inputs, outputs, bias=bias)


def _norm(width: int) -> Any:
    return _on_meta(nn.RMSNorm, width)

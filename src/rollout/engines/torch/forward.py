"""One forward pass of the engine: prompts into the cache, or one more token of every row.

:class:`ModuleForward` calls the model's own code, whatever its architecture.  :class:`FusedForward` computes the same
for the Llama family with a third of the operations.  Each operation has a fixed cost of some microseconds,
whatever its size; a small model decodes one token with hundreds of tiny operations, and this cost is most of a step.
For each LoRA policy, ``adapted`` makes a copy with the policy's additions, on the same weights.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.nn.functional import embedding, scaled_dot_product_attention, silu
from transformers import PreTrainedModel

from ....kernels.memory import out_of_memory
from ....kernels.products import addmm, linear, packed
from ..lora import Adapter, LowRank
from .shared_prompt import SharedPromptCache

POSITIONS = 4096
"""Of the first tables of rotary embeddings: a configuration may claim a context of any length."""


class Forward(Protocol):
    """What a decoder needs of a model.  The passes run inside the cache's ``prefilling`` and ``decoding``."""

    def prefill(self, cache: SharedPromptCache, ids: Tensor, last: Tensor) -> Tensor:
        """Read prompts ``ids`` (n, T), padded on the right; (n, V) logits after those at ``last`` (n,).

        Where the cache has a past of these prompts, ``ids`` is what follows it.
        """
        ...

    def step(self, cache: SharedPromptCache, tokens: Tensor, positions: Tensor) -> Tensor:
        """Read ``tokens`` (B,) at ``positions`` (B,); (B, V) logits."""
        ...

    def adapted(self, adapter: Adapter) -> Self:
        """The forward pass with the present weights of ``adapter``; shares the model's weights with this one."""
        ...

    def pack(self, present: bool) -> None:
        """Have copies of the matrices for faster products, or none; they do not follow what is loaded later."""
        ...


class ModuleForward:
    """The model's own forward pass.

    The cache hands the model its attention (:mod:`.shared_prompt`); positions are handed over, since the model cannot
    count tokens that it does not find in an ordinary cache.
    """

    def __init__(self, model: PreTrainedModel, adapter: Adapter | None = None) -> None:
        self.model, self.adapter = model, adapter

    def adapted(self, adapter: Adapter) -> ModuleForward:
        return ModuleForward(self.model, adapter)

    def pack(self, present: bool) -> None:
        """It has none."""

    def prefill(self, cache: SharedPromptCache, ids: Tensor, last: Tensor) -> Tensor:
        rows, width = ids.shape
        # `logits_to_keep` takes the same positions of all prompts: one for each distinct length among them.
        ends, end_of = last.unique(return_inverse=True)
        past = cache.past
        positions = past.positions if past else torch.arange(width, device=ids.device)[None].expand_as(ids)
        return self._logits(cache, ids, positions, ends)[torch.arange(rows, device=ids.device), end_of]

    def step(self, cache: SharedPromptCache, tokens: Tensor, positions: Tensor) -> Tensor:
        return self._logits(cache, tokens[:, None], positions[:, None], 1)[:, -1]

    def _logits(self, cache: SharedPromptCache, ids: Tensor, positions: Tensor, keep: Tensor | int) -> Tensor:
        with nullcontext() if self.adapter is None else self.adapter.applied():
            output = self.model(
                input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=keep
            )
        return output.logits


class FusedForward:
    """The forward pass of Llama, Mistral, Qwen2 and Qwen3 on the model's own weights.

    The projections that read the same input (queries, keys and values; gate and up) become one matrix, and one product
    instead of three or two.  In float32 they lie transposed in memory, which a CPU multiplies faster with few rows.
    The model's parameters are views of these matrices from now on: what is loaded into the model is seen here, and
    nothing is stored twice but by :meth:`pack`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        core, config = model.model, model.config
        self.embedding, self.norm = core.embed_tokens, core.norm
        self.dtype, self.eps = model.dtype, torch.tensor(config.rms_norm_eps, device=model.device)
        self.can_pack = model.dtype == torch.bfloat16  # as long as memory suffices
        self.head = _Projection(model.lm_head.weight, model.lm_head.bias)
        self.layers = [_Layer(layer, self.eps) for layer in core.layers]
        # Rotary embedding: x * cos + rotated(x) * sin, where rotated([a, b]) = [-b, a] for the halves of a head.  The
        # tables are computed once for all positions that are reached, and the sine carries the minus, so that a plain
        # roll will do.
        self.rotary, self.context = core.rotary_emb, config.max_position_embeddings
        self.cos = self.sin = torch.empty(0)
        self._reach(min(POSITIONS, self.context))

    def _reach(self, positions: int) -> None:
        """Have tables (positions, 1, D) for at least so many positions."""
        if positions <= len(self.cos):
            return
        places = torch.arange(max(positions, min(2 * len(self.cos), self.context)), device=self.embedding.weight.device)
        cos, sin = self.rotary(self.embedding.weight[:0].to(self.dtype), places[None])
        half = sin.shape[-1] // 2
        self.cos = cos[0, :, None]
        self.sin = torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)[:, None]

    @staticmethod
    def applies(model: PreTrainedModel) -> bool:
        """Whether the model is computed here: in float32, and on a CPU in bfloat16."""
        config = model.config
        rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type")
        return (
            config.model_type in ("llama", "mistral", "qwen2", "qwen3")
            and config.hidden_act == "silu"
            and rope in ("default", "linear", "llama3", "yarn")
            and {parameter.dtype for parameter in model.parameters()}
            in ({torch.float32}, {torch.bfloat16} if model.device.type == "cpu" else {torch.float32})
        )

    def adapted(self, adapter: Adapter) -> FusedForward:
        result = copy.copy(self)
        result.layers = [layer.adapted(adapter, f"model.layers.{index}.") for index, layer in enumerate(self.layers)]
        return result

    def pack(self, present: bool) -> None:
        if present and not self.can_pack:
            return
        try:
            for projection in (self.head, *(each for layer in self.layers for each in layer.projections)):
                if not present:
                    projection.packed = None
                elif projection.packed is None:
                    projection.packed = packed(projection.weight)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            self.can_pack = False
            self.pack(False)

    def computing_in(self, dtype: torch.dtype) -> FusedForward:
        """The same weights in another dtype, converted whenever they are used: for comparisons."""
        result = copy.copy(self)
        result.dtype, result.cos = dtype, torch.empty(0)
        result._reach(len(self.cos))
        return result

    def prefill(self, cache: SharedPromptCache, ids: Tensor, last: Tensor) -> Tensor:
        (rows, width), device, past = ids.shape, ids.device, cache.past
        # What the prompts begin with in common is computed once, before what each has of its own: (C + n * R, ...).
        common = shared_beginning(ids, last) if past is None else 0
        rest = width - common
        places = torch.arange(width, device=device)
        order = torch.cat([places[:common], places[common:].repeat(rows)]) if past is None else past.positions.flatten()
        x = embedding(torch.cat([ids[0, :common], ids[:, common:].flatten()]), self.embedding.weight).to(self.dtype)
        self._reach(int(order.max()) + 1)
        cos, sin = self.cos[order], self.sin[order]
        ends = torch.arange(rows, device=device) * rest + last

        def own(x: Tensor) -> Tensor:  # (C + n * R, heads, D) -> (n, heads, R, D)
            return x[common:].view(rows, rest, *x.shape[1:]).transpose(1, 2)

        def whole(x: Tensor) -> Tensor:  # (C + n * R, heads, D) -> (n, heads, T, D)
            if not common:
                return own(x)
            return torch.cat([x[:common].transpose(0, 1).expand(rows, -1, -1, -1), own(x)], 2)

        # A token sees the beginning and its prompt's own tokens up to itself; padding is on the right, unseen.
        earlier = torch.ones(rest, width, dtype=torch.bool, device=device).tril(common) if common else None
        seen = places <= last[:, None]  # (n, T), by the last token of each prompt
        if past is not None:
            earlier, seen = past.mask, past.mask[torch.arange(rows, device=device), 0, last]
        for index, layer in enumerate(self.layers):
            q, k, v = layer.attention_inputs(x, cos, sin)
            keys, values = cache.update(whole(k), whole(v), index)
            attend = partial(scaled_dot_product_attention, scale=layer.scaling, enable_gqa=q.shape[1] != k.shape[1])
            if index + 1 < len(self.layers):
                out = attend(own(q), keys, values, earlier, is_causal=earlier is None).transpose(1, 2).flatten(0, 1)
                if common:
                    q, k, v = (part[:common].transpose(0, 1)[None] for part in (q, k, v))
                    out = torch.cat([attend(q, k, v, is_causal=True)[0].transpose(0, 1), out])
                x = layer.finish(x, out)
            else:
                # Only the last position of each prompt is sampled from.  The last layer needs keys and values of all
                # tokens, for the cache, but the rest of it, and the vocabulary's logits, of that position alone.
                x = layer.finish(x[ends], attend(q[ends][:, :, None], keys, values, seen[:, None, None]))
        return self._logits(x)

    def step(self, cache: SharedPromptCache, tokens: Tensor, positions: Tensor) -> Tensor:
        x = embedding(tokens, self.embedding.weight).to(self.dtype)
        self._reach(int(positions.max()) + 1)
        cos, sin = self.cos[positions], self.sin[positions]
        for index, layer in enumerate(self.layers):
            q, k, v = layer.attention_inputs(x, cos, sin)  # (B, heads, D)
            cache.update(k[:, :, None], v[:, :, None], index)
            x = layer.finish(x, cache.attend(index, q[:, :, None], layer.scaling))
        return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(_normed(x, self.eps).mul_(self.norm.weight)).contiguous()


def shared_beginning(ids: Tensor, last: Tensor) -> int:
    """How many tokens the prompts ``ids`` (n, T), which end at ``last`` (n,), begin with in common, without the last
    one of any; 0 if fewer than half of T: attention to it by a mask costs more than causal attention then.
    """
    same = (ids == ids[:1]).all(0).long()
    common = min(int(same.cumprod(0).sum()), int(last.min()))
    return common if len(ids) > 1 and 2 * common >= ids.shape[1] else 0


class _Layer:
    """One decoder layer; ``low_...`` is the addition of an adapter to a projection."""

    low_qkv: LowRank | None = None
    low_out: LowRank | None = None
    low_gate_up: LowRank | None = None
    low_down: LowRank | None = None

    def __init__(self, layer: Any, eps: Tensor) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.eps, self.scaling, self.width = eps, attention.scaling, attention.head_dim
        self.before_attention, self.before_mlp = layer.input_layernorm, layer.post_attention_layernorm
        self.qkv = _joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self.gate_up = _joined(mlp.gate_proj, mlp.up_proj)
        self.out, self.down = _joined(attention.o_proj), _joined(mlp.down_proj)
        self.projections = (self.qkv, self.out, self.gate_up, self.down)
        self.heads = attention.q_proj.out_features // self.width
        self.kv_heads = attention.k_proj.out_features // self.width
        # Qwen3: a norm over each head of the queries, and another of the keys.
        self.head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None

    def adapted(self, adapter: Adapter, path: str) -> _Layer:
        """This layer, whose modules' names begin with ``path``, with the present weights of ``adapter``."""
        result = copy.copy(self)
        widths = [self.heads * self.width, self.kv_heads * self.width, self.kv_heads * self.width]
        result.low_qkv = adapter.joined([f"{path}self_attn.{name}_proj" for name in "qkv"], widths)
        result.low_out = adapter.of(f"{path}self_attn.o_proj")
        widths = [self.down.weight.shape[1]] * 2
        result.low_gate_up = adapter.joined([f"{path}mlp.{name}_proj" for name in ("gate", "up")], widths)
        result.low_down = adapter.of(f"{path}mlp.down_proj")
        return result

    def attention_inputs(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (..., heads, D) of ``x`` (..., hidden); rotated by (..., 1, D) tables."""
        normed = _normed(x, self.eps).mul_(self.before_attention.weight)
        x = _with(self.low_qkv, normed, self.qkv(normed)).contiguous()
        x = x.view(*x.shape[:-1], self.heads + 2 * self.kv_heads, self.width)
        # Queries and keys stay in one tensor for the norm and the rotation, which treat all heads alike.
        qk, values = x.split([self.heads + self.kv_heads, self.kv_heads], -2)
        if self.head_norms is not None:
            qk = _normed(qk, self.eps)
            for part, norm in zip(qk.split([self.heads, self.kv_heads], -2), self.head_norms, strict=True):
                part.mul_(norm.weight)
        qk = (qk * cos).addcmul_(qk.roll(self.width // 2, -1), sin)
        queries, keys = qk.split([self.heads, self.kv_heads], -2)
        return queries, keys, values

    def finish(self, x: Tensor, attention: Tensor) -> Tensor:
        """The layer's output (..., hidden), from its input ``x`` and the heads' outputs ``attention``."""
        attention = attention.reshape(*x.shape[:-1], -1)
        x = _with(self.low_out, attention, self.out.plus(x, attention))
        normed = _normed(x, self.eps).mul_(self.before_mlp.weight)
        gate, up = _with(self.low_gate_up, normed, self.gate_up(normed)).chunk(2, -1)
        inner = silu(gate).mul_(up)
        return _with(self.low_down, inner, self.down.plus(x, inner))


def _normed(x: Tensor, eps: Tensor) -> Tensor:
    """``x`` (..., n) over its root mean square, by float32: fewer passes over memory than ``rms_norm`` on a CPU."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=eps.dtype)
    return (x * torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).rsqrt_()).to(x.dtype)


@dataclass(eq=False)
class _Projection:
    """A linear layer; ``packed``, where there is one, is a copy of its ``weight``."""

    weight: Tensor
    bias: Tensor | None
    packed: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return linear(x, self.weight.to(x.dtype), bias, self.packed if x.dtype == self.weight.dtype else None)

    def plus(self, total: Tensor, x: Tensor) -> Tensor:
        """``total`` plus the projection of ``x``; in float32 one operation, the sum inside of the product, without a
        bias.
        """
        if self.bias is not None or self.weight.dtype != torch.float32:
            return total + self(x)
        return addmm(total.view(-1, total.shape[-1]), x.view(-1, x.shape[-1]), self.weight.t()).view_as(total)


def _with(low: LowRank | None, source: Tensor, output: Tensor) -> Tensor:
    """``output`` of a projection of ``source``, and an adapter's addition to it."""
    return output if low is None else output + low(source)


def _joined(*projections: Any) -> _Projection:
    """The projections' weights and biases, one below the other; the projections keep views."""
    weight = _one([projection.weight for projection in projections])
    biases = [projection.bias for projection in projections if projection.bias is not None]
    return _Projection(weight, _one(biases) if biases else None)


def _one(parameters: Sequence[Tensor]) -> Tensor:
    """The parameters' values, one below the other, of which they become views; one in float32 lies transposed."""
    whole = torch.cat([parameter.data for parameter in parameters])
    whole = whole.t().contiguous().t() if whole.ndim == 2 and whole.dtype == torch.float32 else whole
    for parameter, view in zip(parameters, whole.split([len(p) for p in parameters]), strict=True):
        parameter.data = view
    return whole

"""The hidden states of Llama, Mistral, Qwen2 and Qwen3 with hand-written gradients, on a CPU.

The same mathematics as the models' own layers, in fewer operations, each of which costs a pass over memory: norms,
rotations and activations are computed in place, their backward passes recompute what is cheap (normalised inputs,
activations), and a layer keeps a third of the usual tensors.  In the last layer, only the tokens that predict targets
are computed; the others are needed there for their keys and values alone.

Shapes: ``T`` tokens, ``Q`` of them queries (in the last layer the scored ones, else all), ``H`` query heads, ``Hkv``
key-value heads, ``D`` head width.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, silu
from transformers import PreTrainedModel

from ...experience import TokenBatch
from ...kernels.products import addmm, few_sizes, linear, matmul, use_onednn, weight_gradient
from .sharding import is_sharded
from .tree_attention import Tree, attend_backward, attend_forward

FUSED: Final = ("llama", "mistral", "qwen2", "qwen3")
"""The model types that are computed here."""


def applies(model: PreTrainedModel) -> bool:
    """Whether the model is computed here: one of :data:`FUSED` on a CPU, in one precision of 32 or 64 bits, with full
    attention, without adapters, dropout and activation checkpointing.
    """
    config = model.config
    if config.model_type not in FUSED:  # whose modules may have any names
        return False
    projections = [module for module in model.model.layers.modules() if hasattr(module, "in_features")]
    return (
        config.hidden_act == "silu"
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and (getattr(config, "layer_types", None) is not None or getattr(config, "sliding_window", None) is None)
        and not (config.attention_dropout and model.training)
        and not (getattr(config, "mlp_bias", False) or model.model.layers[0].self_attn.o_proj.bias is not None)
        and not (getattr(model.model.layers[0], "gradient_checkpointing", False) and model.training)
        and not torch.is_autocast_enabled("cpu")
        and all(type(module) is nn.Linear for module in projections)
        and not is_sharded(model)
        and {(type(p.data), p.dtype, p.device.type) for p in model.parameters()}
        in [{(Tensor, dtype, "cpu")} for dtype in (torch.float32, torch.float64)]
    )


def hidden_states(model: PreTrainedModel, batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """The last hidden states (Q, hidden) of the scored tokens, and the index of each token among these (T,)."""
    core, whole, scored = model.model, Tree.of(batch), Tree.of(batch, scored_only=True)
    # Rows that are 0 make a number of tokens that products are fast for; they stay 0, and so do their gradients.
    added = (0, few_sizes(len(batch.input_ids)) - len(batch.input_ids) if use_onednn() else 0)
    x = pad(core.embed_tokens(batch.input_ids), (0, 0, *added))
    tables = (table[0, :, None].chunk(2, -1)[0] for table in core.rotary_emb(x, pad(batch.positions, added)[None]))
    cos, sin = (table.contiguous() for table in tables)  # (T, 1, D / 2): the halves are alike
    for layer in core.layers:
        last = layer is core.layers[-1]
        x = _FusedLayer.apply(x, cos, sin, scored if last else whole, last, model.config, *_weights(layer))
    rank = scored.queries.new_zeros(len(batch.input_ids))
    rank[scored.queries] = torch.arange(len(scored.queries))
    return core.norm(x), rank


def _weights(layer: Any) -> list[Tensor | None]:
    """In the order of :meth:`_FusedLayer.forward`."""
    attention, mlp = layer.self_attn, layer.mlp
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    norms = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    return [
        layer.input_layernorm.weight,
        *(projection.weight for projection in projections),
        *(projection.bias for projection in projections),
        *(None if norm is None else norm.weight for norm in norms),
        attention.o_proj.weight,
        layer.post_attention_layernorm.weight,
        mlp.gate_proj.weight,
        mlp.up_proj.weight,
        mlp.down_proj.weight,
    ]


class _FusedLayer(torch.autograd.Function):
    """One decoder layer: (T, hidden) -> (Q, hidden)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, tree: Tree, last: bool, config: Any, *weights: Tensor | None
    ) -> Tensor:
        norm_1, wq, wk, wv, bq, bk, bv, norm_q, norm_k, wo, norm_2, w_gate, w_up, w_down = weights
        assert norm_1 is not None and wq is not None and wk is not None and wv is not None and wo is not None
        assert norm_2 is not None and w_gate is not None and w_up is not None and w_down is not None
        eps, rows = config.rms_norm_eps, tree.queries if last else slice(None)
        width = 2 * cos.shape[-1]
        scale_1 = _scale(x, eps)
        normed = _normed(x, scale_1, norm_1)
        raw_q = linear(normed[rows], wq, bq).unflatten(-1, (-1, width))
        raw_k, v = (linear(normed, w, b).unflatten(-1, (-1, width)) for w, b in ((wk, bk), (wv, bv)))
        q, k, scale_q, scale_k = raw_q, raw_k, None, None
        if norm_q is not None and norm_k is not None:
            scale_q, scale_k = _scale(q, eps), _scale(k, eps)
            q, k = _normed(q, scale_q, norm_q), _normed(k, scale_k, norm_k)
        q, k = _rotated(q, cos[rows], sin[rows]), _rotated(k, cos, sin)
        out, lse = attend_forward(q, k, v, tree, width**-0.5)
        middle = addmm(x[rows], out.flatten(1), wo.t())
        scale_2 = _scale(middle, eps)
        normed = _normed(middle, scale_2, norm_2)
        gate, up = linear(normed, w_gate), linear(normed, w_up)
        result = addmm(middle, silu(gate).mul_(up), w_down.t())
        if norm_q is None:
            raw_q = raw_k = None
        ctx.save_for_backward(
            x, cos, sin, scale_1, raw_q, raw_k, scale_q, scale_k, q, k, v, out, lse, middle, scale_2, gate, up, *weights
        )
        ctx.tree, ctx.rows = tree, rows
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, cos, sin, scale_1, raw_q, raw_k, scale_q, scale_k, q, k, v, out, lse, middle, scale_2, gate, up, *weights = (
            ctx.saved_tensors
        )
        norm_1, wq, wk, wv, _, _, _, norm_q, norm_k, wo, norm_2, w_gate, w_up, w_down = weights
        needed, rows = ctx.needs_input_grad[6:], ctx.rows
        of: list[Tensor | None] = [None] * len(weights)

        def product(index: int, of_output: Tensor, inputs: Tensor) -> None:
            """The gradient of a projection's matrix."""
            if needed[index]:
                of[index] = weight_gradient(of_output, inputs)

        # The MLP.
        active = silu(gate)
        of_inner = matmul(grad, w_down)
        of_up = of_inner * active
        product(13, grad, active.mul_(up))
        of_gate = of_inner.mul_(up)
        torch.ops.aten.silu_backward.grad_input(of_gate, gate, grad_input=of_gate)
        unit = middle * scale_2
        normed = unit * norm_2
        product(11, of_gate, normed)
        product(12, of_up, normed)
        flow = addmm(matmul(of_gate, w_gate), of_up, w_up)
        flow, of[10] = _norm_backward(flow, unit, scale_2, norm_2)
        flow += grad
        # Attention.
        product(9, flow, out.flatten(1))
        of_out = matmul(flow, wo).view_as(out)
        of_q, of_k, of_v = attend_backward(of_out, q, k, v, out, lse, ctx.tree, q.shape[-1] ** -0.5)
        of_q, of_k = _rotated(of_q, cos[rows], -sin[rows]), _rotated(of_k, cos, -sin)
        if norm_q is not None:
            of_q, of[7] = _norm_backward(of_q, raw_q * scale_q, scale_q, norm_q)
            of_k, of[8] = _norm_backward(of_k, raw_k * scale_k, scale_k, norm_k)
        unit = x * scale_1
        normed = unit * norm_1
        flat = [each.flatten(1) for each in (of_q, of_k, of_v)]
        for index, of_output, inputs in zip((1, 2, 3), flat, (normed[rows], normed, normed), strict=True):
            product(index, of_output, inputs)
            if needed[index + 3]:
                of[index + 3] = of_output.sum(0)
        through = addmm(matmul(flat[1], wk), flat[2], wv)
        _add(through, rows, matmul(flat[0], wq))
        of_x, of[0] = _norm_backward(through, unit, scale_1, norm_1)
        _add(of_x, rows, flow)
        return of_x, None, None, None, None, None, *(g if use else None for g, use in zip(of, needed, strict=True))


def _add(total: Tensor, rows: Tensor | slice, addend: Tensor) -> None:
    """``addend`` to these rows of ``total``; no row is there twice."""
    if isinstance(rows, slice):
        total += addend
    else:
        total.index_add_(0, rows, addend)


def _scale(x: Tensor, eps: float) -> Tensor:
    """(..., 1), one over the root mean square of ``x`` (..., n)."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()


def _normed(x: Tensor, scale: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm of ``x`` (..., n)."""
    return (x * scale).mul_(weight)


def _norm_backward(grad: Tensor, unit: Tensor, scale: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a norm's input, in place of ``grad``, and weight; ``unit`` is the input times ``scale``."""
    product = grad * unit
    mean = (product @ weight).div_(len(weight))[..., None]
    of_weight = product.flatten(0, -2).sum(0)
    grad.mul_(weight).addcmul_(unit, mean, value=-1).mul_(scale)
    return grad, of_weight


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``x`` (T, heads, D) rotated by the angles with these (T, 1, D / 2) cosines and sines."""
    result = torch.empty_like(x)
    (a, b), (c, d) = x.chunk(2, -1), result.chunk(2, -1)
    torch.mul(a, cos, out=c).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=d).addcmul_(a, sin)
    return result

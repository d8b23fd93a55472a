"""Log-probabilities of the completions' tokens, and the gradient of a loss that is a function of them.

With a large vocabulary the logits are by far the largest tensors of an update: 8,192 tokens over 151,936 words are 5 GB
in float32, and an ordinary step keeps several such tensors for the backward pass.  Here no logits outlive the piece
that they are computed in.  The loss needs no more than one log-probability per token, so it and its gradient are known
before any backward pass; a piece's logits then become the gradients of its hidden states and of the head at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.functional import pad
from transformers import PreTrainedModel

from ...algorithms.objectives import ObjectiveOutput
from ...errors import UnsupportedAttentionError
from ...experience import Segment, TokenBatch
from ...kernels.products import fast_linear, few_sizes
from . import fused_layers
from .tree_attention import Tree

MAX_LOGITS: Final = 1 << 25
"""The most logits of a piece: 2^25 numbers are 128 MiB in float32, and two such tensors are there at once.  Where all
tokens are one piece, its logits are computed once; else twice, before the loss is known and after.
"""

PLAIN_HEADS: Final = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text")
"""The model types whose logits are the head's output for the last hidden state, up to ``final_logit_softcapping``.
Others may scale it, so that their logits are left to their own ``forward``.
"""

Evaluate = Callable[[Tensor, Tensor | None], ObjectiveOutput]
"""(B, C) log-probabilities and entropies -> the objective."""


@dataclass(frozen=True, eq=False)
class Head:
    """From hidden states (n, hidden) to the logits that tokens are sampled from."""

    module: nn.Module
    vocabulary: int
    softcap: float | None
    temperature: float
    """Of all rows, where they have none of their own."""

    def logits(self, hidden: Tensor) -> Tensor:
        """(n, V)"""
        with fast_linear(hidden):
            logits: Tensor = self.module(hidden)
        return logits if self.softcap is None else (logits / self.softcap).tanh() * self.softcap

    def pieces(self, *columns: Tensor) -> list[tuple[Tensor, ...]]:
        """The rows of ``columns``, as many at a time as may have their logits in memory."""
        count = max(1, MAX_LOGITS // self.vocabulary)
        count -= count % 64 if count > 64 else 0  # what products are fast for
        return list(zip(*(column.split(count) for column in columns), strict=True))


class _Piece:
    """The distributions after some hidden states, with the graph from these and the head's parameters to the logits."""

    def __init__(self, head: Head, hidden: Tensor, targets: Tensor, temperatures: Tensor | None = None) -> None:
        self.targets = targets[:, None]
        self.hidden = hidden.detach().requires_grad_(torch.is_grad_enabled() and hidden.requires_grad)
        logits = head.logits(self.hidden)
        self.edge = get_gradient_edge(logits) if logits.requires_grad else None  # without the logits themselves
        self.dtype = logits.dtype
        logits = logits.detach()
        # In float32 at least: bfloat16 has three digits, and an importance ratio is a difference of log-probabilities.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        self.temperature = head.temperature if temperatures is None else temperatures[:, None].to(logits.dtype)
        if temperatures is not None or head.temperature != 1:
            logits = logits / self.temperature
        self.scores = logits.log_softmax(-1)

    def logprobs(self) -> Tensor:
        """(n,) of the targets, nats."""
        return self.scores.gather(1, self.targets)[:, 0]

    def entropies(self) -> Tensor:
        """(n,) nats"""
        return -(self.scores.exp() * self.scores).sum(-1)

    def gradients(self, of_logprob: Tensor, of_entropy: Tensor | None, inputs: Sequence[Tensor]) -> Sequence[Any]:
        """Those of ``inputs``, from those of log-probabilities and entropies (n,).  The scores are lost."""
        # d logprob / d logit_j = [j is the target] - p_j;  d entropy / d logit_j = - p_j (log p_j + entropy)
        if of_entropy is None:
            flow = self.scores.exp_().mul_(-of_logprob[:, None])
        else:
            factor = (self.scores + self.entropies()[:, None]).mul_(of_entropy[:, None]).add_(of_logprob[:, None])
            flow = self.scores.exp_().mul_(factor.neg_())
        flow.scatter_add_(1, self.targets, of_logprob[:, None])
        if isinstance(self.temperature, Tensor) or self.temperature != 1:
            flow.div_(self.temperature)
        assert self.edge is not None, "nothing is learnt"
        # Small numbers are lost in float16, and the factor of a gradient scaler comes later, with the loss's gradient.
        if self.dtype != torch.float16:
            return torch.autograd.grad([self.edge], inputs, [flow.to(self.dtype)], allow_unused=True)
        scale = 1 / flow.abs().amax().clamp(min=1e-30)
        found = torch.autograd.grad([self.edge], inputs, [flow.mul_(scale).to(self.dtype)], allow_unused=True)
        return [None if grad is None else grad / scale for grad in found]


@torch.no_grad()
def token_scores(
    model: PreTrainedModel, batch: TokenBatch, temperature: float | Tensor, *, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """(B, C) float32, nats: log-probability, at ``temperature``, of each completion token, and with ``entropy`` that of
    the distribution that it is drawn from; both 0 where ``mask`` is False.  Without gradients.

    ``temperature`` is a number, or (B,), each candidate's.
    """
    head, hidden = _forward(model, batch, temperature)
    pieces = (
        _Piece(head, *piece)
        for piece in head.pieces(hidden, batch.filled(batch.targets), *_by_token(batch, temperature))
    )
    columns = [(piece.logprobs(), piece.entropies() if entropy else None) for piece in pieces]
    return _table(batch, columns)


def evaluate(
    model: PreTrainedModel, batch: TokenBatch, temperature: float | Tensor, objective: Evaluate, *, entropy: bool
) -> ObjectiveOutput:
    """``objective`` of :func:`token_scores`.  Its loss may be differentiated once; the logits are gone by then."""
    head, hidden = _forward(model, batch, temperature)
    pieces = head.pieces(hidden, batch.filled(batch.targets), *_by_token(batch, temperature))
    parameters = [parameter for parameter in head.module.parameters() if parameter.requires_grad]
    columns, kept = [], None
    for each in pieces:
        with torch.set_grad_enabled(len(pieces) == 1):
            piece = _Piece(head, *each)
        columns.append((piece.logprobs(), piece.entropies() if entropy else None))
        kept = piece if len(pieces) == 1 else None
    logprobs, entropies = _table(batch, columns)
    leaves = [x.requires_grad_() for x in (logprobs, entropies) if x is not None]
    output = objective(logprobs, entropies)
    flows = torch.autograd.grad(output.loss, leaves, allow_unused=True, materialize_grads=True)
    per_token = head.pieces(*(batch.filled(flow).to(logprobs.dtype) for flow in flows))
    of_hidden: list[Tensor] = []
    totals: list[Tensor | None] = []
    for each, (of_logprob, *of_entropy) in zip(pieces, per_token, strict=True):
        piece = kept or _Piece(head, *each)
        inputs = [*([piece.hidden] if hidden.requires_grad else []), *parameters]
        found = list(piece.gradients(of_logprob, of_entropy[0] if of_entropy else None, inputs))
        if hidden.requires_grad:
            of_hidden.append(found.pop(0))
        totals = found if not totals else [_plus(a, b) for a, b in zip(totals, found, strict=True)]
    grads = [torch.cat(of_hidden) if of_hidden else None, *totals]
    loss = _Known.apply(output.loss.detach(), grads, hidden, *parameters)
    return replace(output, loss=loss)


def _plus(total: Tensor | None, addend: Tensor | None) -> Tensor | None:
    return total if addend is None else addend if total is None else total.add_(addend)


class _Known(torch.autograd.Function):
    """A loss whose gradients are known."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, grads: list[Tensor | None], *inputs: Tensor) -> Tensor:
        ctx.grads = grads
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grads, ctx.grads = ctx.grads, None
        if grads is None:
            raise RuntimeError("the loss of a micro-batch can be differentiated once")
        return None, None, *(each if each is None else each.mul_(grad) for each in grads)


def _table(batch: TokenBatch, columns: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor | None]:
    """(B, C) log-probabilities and entropies, 0 where ``mask`` is False, from those of the pieces."""
    logprobs, entropies = zip(*columns, strict=True)
    values = torch.cat(logprobs)
    zeros = values.new_zeros(batch.mask.shape)
    second = None if entropies[0] is None else zeros.masked_scatter(batch.mask, torch.cat(entropies))
    return zeros.masked_scatter(batch.mask, values), second


def _by_token(batch: TokenBatch, temperature: float | Tensor) -> list[Tensor]:
    """The column of the tokens' temperatures, in the order of ``batch.mask``; none where all have one."""
    if not isinstance(temperature, Tensor):
        return []
    return [batch.filled(temperature[:, None].expand(batch.mask.shape))]


def _forward(model: PreTrainedModel, batch: TokenBatch, temperature: float | Tensor) -> tuple[Head, Tensor]:
    """The head, and its input for each completion token (tokens, hidden), in the order of ``batch.mask``."""
    config, sources = model.config, batch.filled(batch.sources)
    common = 1.0 if isinstance(temperature, Tensor) else temperature
    if fused_layers.applies(model):
        hidden, rank = fused_layers.hidden_states(model, batch)
        module, sources = model.get_output_embeddings(), rank[sources]
        return Head(module, config.vocab_size, None, common), hidden.index_select(0, sources)
    if model.dtype == torch.bfloat16 and batch.input_ids.device.type == "cpu":
        batch = _in_few_sizes(batch)
    tree = Tree.of(batch)
    inputs = {"input_ids": batch.input_ids[None], "position_ids": batch.positions[None], "use_cache": False}
    # A checkpointed layer is computed once more, outside of the context, and must keep the same tensors then.
    checkpointed = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    with nullcontext() if checkpointed else fast_linear(model.get_input_embeddings().weight):
        if config.model_type in PLAIN_HEADS:
            hidden = model.base_model(**inputs, tree=tree).last_hidden_state[0]
            module, softcap = model.get_output_embeddings(), getattr(config, "final_logit_softcapping", None)
        else:
            hidden, module, softcap = model(**inputs, tree=tree).logits[0], nn.Identity(), None
    if tree.calls != config.num_hidden_layers:
        raise UnsupportedAttentionError(
            f"{type(model).__name__} has {config.num_hidden_layers} layers, of which {tree.calls} use the attention "
            "interface of transformers with all keyword arguments; Troupe cannot train the others"
        )
    return Head(module, config.vocab_size, softcap, common), hidden.index_select(0, sources)


def _in_few_sizes(batch: TokenBatch) -> TokenBatch:
    """``batch`` with a segment of padding, which no token sees: as many tokens as other batches have.

    For each number of rows oneDNN keeps code for AMX, megabytes in all, and malloc finds no use for the blocks of
    another number: with a number of its own for each micro-batch an update would take several times the memory.
    """
    count = len(batch.input_ids)
    end = few_sizes(count)
    padded = [pad(column, (0, end - count)) for column in (batch.input_ids, batch.positions)]
    segments = [*batch.segments, Segment(count, end, end, scored=False)] if end > count else batch.segments
    return replace(batch, input_ids=padded[0], positions=padded[1], segments=segments)

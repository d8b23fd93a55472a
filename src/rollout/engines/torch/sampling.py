"""Drawing tokens: temperature, truncation, inverse-CDF sampling and the log-probabilities of the drawn tokens.

``torch.multinomial`` would not do.  It takes its randomness from one generator for the whole batch, so a row's tokens
would change with whatever shares its batch, with the order of the rows and with the device.  Here a row has uniform
numbers of its own, a function of the request's seed and the row's index (:func:`uniforms`), and inverse-CDF sampling
turns one number and one row of logits into one token (:func:`draw`).  A request then draws the same alone, in a crowd,
and on a GPU, as far as its logits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ....experience import Sampling

_MASK64 = (1 << 64) - 1
LIKELIEST = 1024
"""Tokens among which top-p is looked for first."""
AT_ONCE = 1 << 18
"""Logits that a CPU draws from at once, a row at least: as many as its caches hold through all passes."""
BLOCK = 1024
"""Tokens whose probabilities are added up first, where there are more: only one block's are then added one by one."""


def uniforms(seed: int, row: int, count: int) -> list[float]:
    """``count`` draws from [0, 1) that depend on nothing but (``seed``, ``row``).

    Philox is a counter-based generator: number i is a hash of the key and of i.  Any pair of numbers is a valid key, so
    there is a stream for every row of every request, and none has a state that decoding would have to keep or to copy.
    It runs in numpy on the host, so that every device gets the same numbers.
    """
    key = np.array([seed & _MASK64, row & _MASK64], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count).tolist()


@dataclass(frozen=True)
class SamplingTensors:
    """The sampling of every row of a batch; None stands for a setting that no row uses, and skips its work.

    Most batches of training use none of them: temperature 1, no truncation.
    """

    temperature: Tensor | None
    """(B, 1) float64, 1 for greedy rows; None if all are 1."""
    greedy: Tensor | None
    """(B,) bool; None if no row is greedy."""
    top_k: Tensor | None
    """(B, 1) int64, V for rows that it does not truncate; None if it truncates none."""
    top_p: Tensor | None
    """(B, 1) float64; None if all are 1."""

    @classmethod
    def of(cls, samplings: Sequence[Sampling], vocabulary: int, device: torch.device) -> SamplingTensors:
        """Of rows with ``samplings`` over a vocabulary of this size."""

        def column(values: list[float] | list[int]) -> Tensor:
            dtype = torch.float64 if isinstance(values[0], float) else torch.int64
            return torch.tensor(values, dtype=dtype, device=device)[:, None]

        temperature = [float(s.temperature or 1) for s in samplings]
        greedy = [s.temperature == 0 for s in samplings]
        top_k = [min(s.top_k or vocabulary, vocabulary) for s in samplings]
        top_p = [float(s.top_p) for s in samplings]
        return cls(
            column(temperature) if any(t != 1 for t in temperature) else None,
            torch.tensor(greedy, device=device) if any(greedy) else None,
            column(top_k) if any(k < vocabulary for k in top_k) else None,
            column(top_p) if any(p < 1 for p in top_p) else None,
        )

    def part(self, rows: slice) -> SamplingTensors:
        """Of some of the rows."""
        every = (self.temperature, self.greedy, self.top_k, self.top_p)
        return SamplingTensors(*(None if each is None else each[rows] for each in every))


def distribution(logits: Tensor, sampling: SamplingTensors) -> Tensor:
    """Log-probabilities (B, V), nats, -inf where truncated, that the rows sample from; greedy rows are not special.

    The order is temperature, top-k, top-p.  ``logits`` (B, V) float32 or float64, finite.  Top-k keeps ties with the
    k-th logit; top-p keeps the smallest set of most likely tokens whose mass reaches ``top_p``, and ties with the last.
    """
    if sampling.temperature is not None:
        # The maximum is moved to 0 first: logits / 1e-30 would overflow to infinity, and inf - inf is no number.
        logits = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature.to(logits.dtype)
    if sampling.top_k is not None:
        truncated = sampling.top_k < logits.shape[-1]
        ranks = torch.where(truncated, sampling.top_k, 1)
        least = logits.topk(int(ranks.max())).values.gather(1, ranks - 1)
        logits = logits.masked_fill(truncated & (logits < least), float("-inf"))
    if sampling.top_p is not None:
        logits = _nucleus(logits, sampling.top_p, min(LIKELIEST, logits.shape[-1]))
    return logits.log_softmax(-1)


def _nucleus(logits: Tensor, top_p: Tensor, count: int) -> Tensor:
    """``logits`` without those outside of the most likely tokens of mass ``top_p``, looked for among ``count``, and
    among all where those do not suffice: of 150,000 words few matter, and sorting all takes longer than a model's step.
    """
    likeliest = logits.topk(count).values
    mass = (likeliest - logits.logsumexp(-1, keepdim=True)).exp()
    # A token stays if the tokens before it do not reach top_p yet; so the first one always stays.
    inside = mass.cumsum(-1) - mass < top_p
    if count < logits.shape[-1] and (inside[:, -1:] & (top_p < 1)).any():
        return _nucleus(logits, top_p, logits.shape[-1])
    least = likeliest.gather(1, inside.sum(-1, keepdim=True).clamp(min=1) - 1)
    return logits.masked_fill((top_p < 1) & (logits < least), float("-inf"))


def draw(logits: Tensor, sampling: SamplingTensors, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """One token per row: (ids (B,) int64, log-probs (B,) nats under :func:`distribution`; 0 for a greedy row).

    ``logits`` (B, V) of any float type, finite; ``uniform`` (B,) float64 in [0, 1).  Inverse-CDF sampling: the token is
    the first one at which the cumulative probability exceeds the uniform number.
    """
    size = max(1, AT_ONCE // logits.shape[-1]) if logits.device.type == "cpu" else len(logits)
    if len(logits) <= size:
        return _draw(logits, sampling, uniform)
    parts = [slice(start, start + size) for start in range(0, len(logits), size)]
    tokens, logprobs = zip(*(_draw(logits[part], sampling.part(part), uniform[part]) for part in parts), strict=True)
    return torch.cat(tokens), torch.cat(logprobs)


def _draw(logits: Tensor, sampling: SamplingTensors, uniform: Tensor) -> tuple[Tensor, Tensor]:
    # Log-probs are the denominator of the learner's importance ratio, which it computes in float32 too.  bfloat16 has 8
    # bits of mantissa: near 10 nats its steps are 1/16, and every ratio would be off by a few per cent.
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logprobs = distribution(logits, sampling)
    probabilities, count = logprobs.exp(), logits.shape[-1]
    if count > BLOCK:
        blocks = pad(probabilities, (0, -count % BLOCK)).view(len(logits), -1, BLOCK)
        weights = blocks.sum(-1, dtype=torch.float64)
        block, cumulative, point = _first_above(weights, uniform[:, None])
        share = 1 - (cumulative.gather(1, block) - point) / weights.gather(1, block)  # of the block, below the point
        inside = blocks[torch.arange(len(logits), device=logits.device), block[:, 0]]
        tokens = block * BLOCK + _first_above(inside, share.clamp(min=0))[0]
    else:
        tokens = _first_above(probabilities, uniform[:, None])[0]
    token_logprobs = logprobs.gather(1, tokens)
    if sampling.greedy is not None:
        # The distribution that a greedy row samples from is a point mass: probability 1, log-prob 0.
        tokens = torch.where(sampling.greedy[:, None], logits.argmax(-1, keepdim=True), tokens)
        token_logprobs = torch.where(sampling.greedy[:, None], torch.zeros_like(token_logprobs), token_logprobs)
    return tokens[:, 0], token_logprobs[:, 0]


def _first_above(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row of ``weights`` (B, n), the first at which their sum exceeds ``uniform`` (B, 1) of the total, (B, 1);
    the sums (B, n); and what is exceeded, (B, 1).
    """
    # float64: a token of probability below 3e-8 adds nothing to a float32 sum near 1, and could never be drawn.
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    # The total is 1 but for rounding.  Scaling the number by it costs less than dividing all of ``cumulative``; staying
    # strictly below it keeps the search from running past the last token of positive probability.
    total = cumulative[:, -1:]
    point = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, point, right=True), cumulative, point  # right: never one of probability 0

"""Decoding of one policy: rows join with their prompt read once, step together, and leave when they end.

The rows of a batch are at different places of different completions (continuous batching): a row that ends makes room
at once, instead of being padded until the longest is done, and a request that waits may join at any step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ....experience import Completion, FinishReason, Request
from ....kernels.contention import is_small
from ....kernels.products import min_widened_rows
from ..local import cache_numbers
from ..lora import Adapter
from ..weights import load_strictly
from .forward import Forward
from .prefixes import Part, Past, Prefix, PrefixCache, close_gaps
from .sampling import SamplingTensors, draw, uniforms
from .shared_prompt import SharedPromptCache

# Prompts are read in batches of at most this many tokens, padding included, and this many logits: enough to keep a GPU
# busy, few enough for the caches of a CPU.
PREFILL_TOKENS, PREFILL_LOGITS = 4096, 1 << 26
PACKED_FROM = 16
"""Tokens that a completion may still have from which the matrices are copied for it."""


@dataclass(eq=False)
class DecodingJob:
    """A request under way."""

    request: Request
    deliver: Callable[[list[Completion]], None]
    """Called once, with all completions, in the thread that decodes."""
    is_abandoned: Callable[[], bool]
    """Whether nobody waits for the completions any more: the job is dropped then."""
    completions: dict[int, Completion] = field(default_factory=dict)
    asked: float = field(default_factory=perf_counter)
    waited: float = 0.0
    """Seconds from then to the reading of the prompt."""

    def restart(self) -> None:
        """Nothing of it was decoded."""
        self.completions.clear()

    def finish(self, index: int, completion: Completion) -> None:
        """Completion ``index`` has ended."""
        self.completions[index] = completion
        if len(self.completions) == self.request.n:
            self.deliver([self.completions[i] for i in range(self.request.n)])


@dataclass(eq=False)
class Row:
    """One completion under way."""

    job: DecodingJob
    index: int
    """Among the request's completions."""
    uniforms: list[float]
    """One per token, in [0, 1): see :mod:`.sampling`."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """Of the weights that each token was drawn with."""
    searched: int = 0
    """Index of the first token that may still be part of a stop string."""
    parts: tuple[Part, ...] | None = None
    """The prompt's keys and values; None where they are not kept."""

    def tokens_left(self) -> int:
        return self.job.request.sampling.max_tokens - len(self.tokens)


class Decoder:
    """The rows of one policy that decode together.

    ``eos`` are the tokens that end a completion.  With ``adapter``, the policy is that adapter on ``model``.
    ``prefix_bytes`` bounds the keys and values of earlier prompts and completions that are kept for later prompts;
    0: none are.  ``forwarded`` counts the tokens that the model has read: ``prompt`` (without padding and without what
    was kept) and ``completion``.

    Between two steps, the last token of each row is drawn and not yet read by the model; weights may be loaded then.
    Rows under way go on with the keys and values that the weights before have computed of their earlier tokens.
    """

    def __init__(
        self,
        policy: str,
        model: PreTrainedModel,
        forward: Forward,
        tokenizer: PreTrainedTokenizerBase,
        eos: frozenset[int],
        adapter: Adapter | None = None,
        prefix_bytes: float = 0,
    ) -> None:
        self.policy, self.model, self.tokenizer, self.eos = policy, model, tokenizer, eos
        self.adapter, self._plain = adapter, forward
        self.forward = forward if adapter is None else forward.adapted(adapter)
        self.small = is_small(model)
        self._token_bytes = cache_numbers(model.config) * model.dtype.itemsize  # of a token's keys and values
        self.version = 0
        self.forwarded: Counter[str] = Counter()
        self.rows: list[Row] = []
        self.prefixes = PrefixCache(prefix_bytes)
        self._cache = SharedPromptCache()
        self._sampling: SamplingTensors | None = None  # of all rows; kept from step to step while they stay the same

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Replace the policy's weights by those of ``version``.

        Raises ``ValueError`` for weights that do not fit; nothing is changed then.
        """
        if self.adapter is None:
            load_strictly(self.policy, self.model, weights)
        else:
            self.adapter.load(weights)
            self.forward = self._plain.adapted(self.adapter)
        self.version = version
        self.forget()

    def forget(self) -> None:
        """Keep no keys and values for later prompts of what was computed up to now."""
        self.prefixes = PrefixCache(self.prefixes.limit)
        for row in self.rows:
            row.parts = None

    def clear(self) -> None:
        """Drop all rows and all keys and values."""
        self._clear_rows()
        self.forget()

    def _clear_rows(self) -> None:
        self.rows, self._cache, self._sampling = [], SharedPromptCache(), None

    def jobs(self) -> list[DecodingJob]:
        """The jobs under way, in order."""
        return list(dict.fromkeys(row.job for row in self.rows))

    @property
    def cached_bytes(self) -> int:
        """Of the keys and values of present rows, padding included."""
        lengths, rows = self._cache.prompt_lengths, len(self.rows)
        return (len(lengths) * max(lengths, default=0) + rows * self._cache.columns) * self._token_bytes

    def fitting(self, jobs: Sequence[DecodingJob], max_rows: int, max_bytes: float) -> int:
        """How many of ``jobs``, from the first, may join: with them there are at most ``max_rows`` rows, and the stores
        of keys and values, which grow for them, have at most ``max_bytes``.  One always may where there is no row.
        """
        requests, places = [job.request for job in jobs], dict[tuple[int, ...], int]()
        prompts = [places.setdefault(request.prompt_ids, len(places)) for request in requests]
        rows = list(accumulate((request.n for request in requests), initial=len(self.rows)))
        longest = list(
            accumulate((len(r.prompt_ids) for r in requests), max, initial=max(self._cache.prompt_lengths, default=0))
        )
        columns = list(accumulate((r.sampling.max_tokens for r in requests), max, initial=self._cache.columns))

        def exceeds(count: int) -> bool:
            sizes = Counter[int]()
            for prompt, request in zip(prompts[:count], requests, strict=False):
                sizes[prompt] += request.n
            groups = len(self._cache.prompt_lengths) + _group_count([*sizes.values()], _group_width([*sizes.values()]))
            room = self._cache.room((groups, longest[count]), (rows[count], columns[count]))
            return rows[count] > max_rows or room * self._token_bytes > max_bytes

        least = 0 if self.rows else 1
        return max(bisect_left(range(1, len(jobs) + 1), True, key=exceeds), min(least, len(jobs)))

    @torch.inference_mode()
    def admit(self, jobs: Sequence[DecodingJob]) -> None:
        """Read the prompts of ``jobs``, of each distinct one once what is not known of it, and sample their rows' first
        tokens.
        """
        by_prompt: dict[tuple[int, ...], list[Row]] = {}
        for job in jobs:
            request, job.waited = job.request, perf_counter() - job.asked
            by_prompt.setdefault(request.prompt_ids, []).extend(
                Row(job, i, uniforms(request.seed, i, request.sampling.max_tokens)) for i in range(request.n)
            )
        prefixes = {prompt: self.prefixes.find(prompt) for prompt in by_prompt}
        # Those that are read from the start come first; by the length of what is read, so that little is padded.  The
        # sort is stable: the same jobs give the same rows in the same order, hence the same bits.
        prompts = sorted(by_prompt, key=lambda each: (prefixes[each].length > 0, len(each) - prefixes[each].length))
        width = _group_width([len(by_prompt[prompt]) for prompt in prompts])
        groups = [  # (index of the prompt, at most `width` of its rows)
            (index, by_prompt[prompt][start : start + width])
            for index, prompt in enumerate(prompts)
            for start in range(0, len(by_prompt[prompt]), width)
        ]
        first = len(self._cache.prompt_lengths)
        self._cache.add_groups(
            [len(prompts[index]) for index, _ in groups],
            [len(rows) for _, rows in groups],
            max(job.request.sampling.max_tokens for job in jobs),
        )
        logits = self._read(prompts, [prefixes[each] for each in prompts], [index for index, _ in groups], first)
        if self.prefixes.limit:
            group_of = {prompts[index]: group for group, (index, _) in enumerate(groups, start=first)}  # one of them
            for prompt, group in group_of.items():
                self._keep_prompt(prompt, prefixes[prompt], group, by_prompt[prompt])
        before = len(self.rows)
        self.rows += [row for _, rows in groups for row in rows]
        self._sampling = None
        # The K first tokens of a prompt are K draws from one row of logits.
        prompt_of_row = torch.tensor([index for index, rows in groups for _ in rows], device=logits.device)
        self._extend(range(before, len(self.rows)), logits[prompt_of_row])

    @torch.inference_mode()
    def step(self) -> None:
        """One more token for every row."""
        if len(self.rows) < min_widened_rows() and any(row.tokens_left() >= PACKED_FROM for row in self.rows):
            self.forward.pack(True)
        device = self.model.device
        tokens = torch.tensor([row.tokens[-1] for row in self.rows], device=device)
        positions = [len(row.job.request.prompt_ids) + len(row.tokens) - 1 for row in self.rows]
        with self._cache.decoding(device):
            logits = self.forward.step(self._cache, tokens, torch.tensor(positions, device=device))
        self.forwarded["completion"] += len(self.rows)
        self._extend(range(len(self.rows)), logits)

    @torch.inference_mode()
    def drop_abandoned(self) -> None:
        """Drop the rows for which nobody waits."""
        if abandoned := {job for job in self.jobs() if job.is_abandoned()}:
            self._remove([index for index, row in enumerate(self.rows) if row.job in abandoned])

    # ---- the model --------------------------------------------------------------------------------------------------

    def _read(
        self, prompts: Sequence[tuple[int, ...]], prefixes: Sequence[Prefix], prompt_of: Sequence[int], first: int
    ) -> Tensor:
        """Fill the cache; (prompts, V) logits after each prompt.  Group ``first + i`` has prompt ``prompt_of[i]``.

        Of each prompt what follows its prefix is read; those without a prefix come first.
        """
        device, parts = self.model.device, []
        rests = [prompt[prefix.length :] for prompt, prefix in zip(prompts, prefixes, strict=True)]
        lengths = list(map(len, rests))
        new = sum(not prefix.length for prefix in prefixes)
        vocabulary = self.model.config.vocab_size
        chunks = [
            *_chunks(lengths[:new], vocabulary),
            *((new + start, new + stop) for start, stop in _chunks(lengths[new:], vocabulary)),
        ]
        for start, stop in chunks:
            width = lengths[stop - 1]
            ids = torch.tensor([[*r, *[0] * (width - len(r))] for r in rests[start:stop]], device=device)
            # A prompt with more rows than a group may have is read once and stored by each of its groups.
            places = [(index - start, first + i) for i, index in enumerate(prompt_of) if start <= index < stop]
            last = torch.tensor(lengths[start:stop], device=device) - 1
            past = Past(prefixes[start:stop], lengths[start:stop], device) if start >= new else None
            with self._cache.prefilling([source for source, _ in places], [group for _, group in places], past):
                parts.append(self.forward.prefill(self._cache, ids, last))
            self.forwarded["prompt"] += sum(lengths[start:stop])
        return torch.cat(parts)

    # ---- what is kept for later prompts -----------------------------------------------------------------------------

    def _keep_prompt(self, prompt: tuple[int, ...], prefix: Prefix, group: int, rows: Sequence[Row]) -> None:
        """Keep the keys and values of a ``group`` 's prompt, which was read after ``prefix``."""
        parts = (*prefix.parts, Part(self._cache.prompt_piece(group, prefix.length), len(prompt) - prefix.length))
        self.prefixes.add(prompt, parts)
        for row in rows:
            row.parts = parts

    def _keep_row(self, index: int) -> None:
        """Keep the keys and values of a completion, whose last token was never read."""
        row = self.rows[index]
        read = len(row.tokens) - 1
        if row.parts is not None and read:
            parts = (*row.parts, Part(self._cache.own_piece(index), read))
            self.prefixes.add((*row.job.request.prompt_ids, *row.tokens[:-1]), parts)

    # ---- tokens -----------------------------------------------------------------------------------------------------

    def _extend(self, indices: range, logits: Tensor) -> None:
        """Draw the next token of the rows ``indices``, all or the newest, and remove those that it ends."""
        if not torch.stack(logits.aminmax()).isfinite().all():  # one pass, in which a NaN survives
            raise FloatingPointError(f"policy '{self.policy}', version {self.version}: logits that are not finite")
        rows = self.rows[indices.start : indices.stop]
        all_rows = len(rows) == len(self.rows)
        sampling = self._sampling if all_rows else None
        if sampling is None:
            samplings = [row.job.request.sampling for row in rows]
            sampling = SamplingTensors.of(samplings, logits.shape[-1], logits.device)
        self._sampling = sampling if all_rows else None
        uniform = torch.tensor([row.uniforms[len(row.tokens)] for row in rows], dtype=torch.float64)
        tokens, logprobs = draw(logits, sampling, uniform.to(logits.device))
        complete = []
        for index, token, logprob in zip(indices, tokens.tolist(), logprobs.tolist(), strict=True):
            row = self.rows[index]
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.versions.append(self.version)
            if (told := row.job.request.on_token) is not None and not row.index:
                told(len(row.tokens) - 1, token, logprob)
            if (end := self._end(row)) is not None:
                row.job.finish(row.index, self._completion(row, *end))
                complete.append(index)
        for index in complete:
            self._keep_row(index)
        if complete:
            self._remove(complete)

    def _end(self, row: Row) -> tuple[FinishReason, str] | None:
        """(reason, text) if the last token ends the row."""
        sampling = row.job.request.sampling
        is_eos = row.tokens[-1] in self.eos
        if sampling.stop and (text := self._before_stop(row, sampling.stop)) is not None:
            return "stop", text
        if is_eos or len(row.tokens) == sampling.max_tokens:
            return "stop" if is_eos else "length", self._text(row.tokens[: -1 if is_eos else None])
        return None

    def _before_stop(self, row: Row, stops: Sequence[str]) -> str | None:
        """The text before the first stop string, if there is one.

        Stop strings are searched in text, since tokens may begin or end in the middle of one.  To decode the whole text
        at each token would cost the square of its length, so only the newest part is, with enough before it to hold a
        stop string's beginning.  Where that part holds one, the whole text decides: a tokenizer may decode a part
        differently.
        """
        newest = self._text(row.tokens[row.searched :])
        if any(stop in newest for stop in stops):
            text = self._text(row.tokens)
            positions = [position for stop in stops if (position := text.find(stop)) >= 0]
            if positions:
                return text[: min(positions)]
        longest = max(map(len, stops))
        if len(newest) > 8 * (longest + 8):
            middle = (row.searched + len(row.tokens)) // 2
            if len(self._text(row.tokens[middle:])) > longest + 4:  # a few more: decoding may trim the first characters
                row.searched = middle
        return None

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def _completion(self, row: Row, reason: FinishReason, text: str) -> Completion:
        oldest = row.versions[0]
        versions = () if oldest == self.version else tuple(row.versions)
        tokens, logprobs, waited = tuple(row.tokens), tuple(row.logprobs), row.job.waited
        return Completion(tokens, logprobs, text, reason, self.policy, oldest, versions, waited=waited)

    def _remove(self, indices: Sequence[int]) -> None:
        if len(indices) == len(self.rows):
            self._clear_rows()
            return
        self._cache.remove(indices)
        close_gaps(self.rows, indices)  # as the cache does with its rows
        self._sampling = None


def _chunks(lengths: Sequence[int], vocabulary: int) -> Iterator[tuple[int, int]]:
    """Ranges of ascending ``lengths`` within the budgets, of one prompt at least.

    :class:`.forward.ModuleForward` computes logits at every distinct length's end for every prompt of the range, hence
    the second budget.
    """
    start = 0
    for stop in range(1, len(lengths) + 1):
        if stop < len(lengths):
            prompts, distinct = stop + 1 - start, len(set(lengths[start : stop + 1]))
            if prompts * lengths[stop] <= PREFILL_TOKENS and prompts * distinct * vocabulary <= PREFILL_LOGITS:
                continue
        yield start, stop
        start = stop


def _group_width(sizes: Sequence[int]) -> int:
    """Rows per group, at the most, for prompts with ``sizes`` rows: one of the sizes.

    The grid of a decoding step has equally many slots in every group, used or not.  Wide groups read a prompt's keys
    once for many rows; but one prompt with 64 rows beside nine with one would make ten groups of 64 slots.  A step
    costs about groups * (width + the reading of the prompt's keys, worth some 4 rows): the cheapest width is taken.
    """
    return min(sorted(set(sizes)), key=lambda width: _group_count(sizes, width) * (width + 4))


def _group_count(sizes: Sequence[int], width: int) -> int:
    """Groups of at most ``width`` rows for prompts with ``sizes`` rows."""
    return sum(-(-size // width) for size in sizes)

"""The decoding loop of one policy: rows join with their prompt read once, step together, and leave when done."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ....experience import Completion, FinishReason, Request
from ..lora import Adapter
from ..weights import load_strictly
from .forward import Forward
from .sampling import Knobs, draw, uniforms
from .shared_prompt import SharedPromptCache, close

# Prompts are read in batches of at most this many tokens, padding included, and this many logits: enough to keep a GPU
# busy, few enough for the caches of a CPU.
PREFILL_TOKENS, PREFILL_LOGITS = 4096, 1 << 26


@dataclass(eq=False)
class Job:
    """A request under way.  ``deliver`` gets the completions; a job whose caller has gone (``gone()``) is dropped."""

    request: Request
    deliver: Callable[[list[Completion]], None]
    gone: Callable[[], bool]
    done: dict[int, Completion] = field(default_factory=dict)

    def finish(self, index: int, completion: Completion) -> None:
        self.done[index] = completion
        if len(self.done) == self.request.n:
            self.deliver([self.done[i] for i in range(self.request.n)])


@dataclass(eq=False)
class Row:
    """One completion under way."""

    job: Job
    index: int
    uniforms: list[float]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    read: int = 0
    """Tokens before this one were already searched for stop strings."""


class Decoder:
    """The rows of one policy that decode together.

    ``eos`` ends a completion.  With ``adapter``, the policy is one on ``model``.  ``forwarded`` counts the tokens that
    went through the model: of prompts (padding excluded), and of completions.
    """

    def __init__(
        self,
        policy: str,
        model: PreTrainedModel,
        forward: Forward,
        tokenizer: PreTrainedTokenizerBase,
        eos: frozenset[int],
        adapter: Adapter | None = None,
    ) -> None:
        self.policy, self.model, self.tokenizer, self.eos = policy, model, tokenizer, eos
        self.adapter, self._plain = adapter, forward
        self.forward = forward if adapter is None else forward.adapted(adapter)
        self.version = 0
        self.forwarded: Counter[str] = Counter()
        self.rows: list[Row] = []
        self._cache = SharedPromptCache()
        self._knobs: Knobs | None = None

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the policy's weights.  Raises ``ValueError`` for weights that do not fit; nothing is changed then."""
        if self.adapter is None:
            load_strictly(self.policy, self.model, weights)
        else:
            self.adapter.load(weights)
            self.forward = self._plain.adapted(self.adapter)

    def clear(self) -> None:
        """Drop all rows and the memory they held."""
        self.rows, self._cache, self._knobs = [], SharedPromptCache(), None

    def jobs(self) -> list[Job]:
        """The jobs under way, in order."""
        return list(dict.fromkeys(row.job for row in self.rows))

    @torch.inference_mode()
    def admit(self, jobs: Sequence[Job]) -> None:
        """Read the prompts of ``jobs``, each distinct one once, and sample their rows' first tokens."""
        by_prompt: dict[tuple[int, ...], list[Row]] = {}
        for job in jobs:
            request = job.request
            by_prompt.setdefault(request.prompt_ids, []).extend(
                Row(job, i, uniforms(request.seed, i, request.sampling.max_tokens)) for i in range(request.n)
            )
        # By length, so that little is padded; stable, so that the order is that of the jobs.
        prompts = sorted(by_prompt, key=len)
        width = _group_width([len(by_prompt[prompt]) for prompt in prompts])
        groups = [  # (prompt, rows)
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
        logits = self._read(prompts, [index for index, _ in groups], first)
        joined = len(self.rows)
        self.rows += [row for _, rows in groups for row in rows]
        self._knobs = None
        of_row = torch.tensor([index for index, rows in groups for _ in rows], device=logits.device)
        self._extend(range(joined, len(self.rows)), logits[of_row])

    @torch.inference_mode()
    def step(self) -> None:
        """One more token for every row."""
        device = self.model.device
        tokens = torch.tensor([row.tokens[-1] for row in self.rows], device=device)
        positions = [len(row.job.request.prompt_ids) + len(row.tokens) - 1 for row in self.rows]
        with self._cache.decoding(device):
            logits = self.forward.step(self._cache, tokens, torch.tensor(positions, device=device))
        self.forwarded["completion"] += len(self.rows)
        self._extend(range(len(self.rows)), logits)

    @torch.inference_mode()
    def drop_abandoned(self) -> None:
        """Drop the rows whose callers have gone."""
        if gone := {job for job in self.jobs() if job.gone()}:
            self._remove([index for index, row in enumerate(self.rows) if row.job in gone])

    # ---- the model --------------------------------------------------------------------------------------------------

    def _read(self, prompts: Sequence[tuple[int, ...]], prompt_of: Sequence[int], first: int) -> Tensor:
        """Fill the cache; (prompts, V) logits after each prompt.  Group ``first + i`` has prompt ``prompt_of[i]``."""
        device, parts = self.model.device, []
        for start, stop in _chunks([len(prompt) for prompt in prompts], self.model.config.vocab_size):
            width = len(prompts[stop - 1])
            ids = torch.tensor([[*p, *[0] * (width - len(p))] for p in prompts[start:stop]], device=device)
            here = [(index - start, first + i) for i, index in enumerate(prompt_of) if start <= index < stop]
            last = torch.tensor([len(prompt) - 1 for prompt in prompts[start:stop]], device=device)
            with self._cache.prefilling([source for source, _ in here], [group for _, group in here]):
                parts.append(self.forward.prefill(self._cache, ids, last))
            self.forwarded["prompt"] += sum(map(len, prompts[start:stop]))
        return torch.cat(parts)

    # ---- tokens -----------------------------------------------------------------------------------------------------

    def _extend(self, indices: range, logits: Tensor) -> None:
        """Draw the next token of the rows ``indices`` (all that are newest) and remove those that it finishes."""
        if not math.isfinite(logits.sum(dtype=torch.float32).item()):  # one pass; a NaN or infinity survives a sum
            raise FloatingPointError(f"policy '{self.policy}', version {self.version}: logits that are not finite")
        rows = self.rows[indices.start : indices.stop]
        whole = len(rows) == len(self.rows)
        knobs = self._knobs if whole else None
        if knobs is None:
            knobs = Knobs.of([row.job.request.sampling for row in rows], logits.shape[-1], logits.device)
        self._knobs = knobs if whole else None
        uniform = torch.tensor([row.uniforms[len(row.tokens)] for row in rows], dtype=torch.float64)
        tokens, logprobs = draw(logits, knobs, uniform.to(logits.device))
        finished = []
        for index, token, logprob in zip(indices, tokens.tolist(), logprobs.tolist(), strict=True):
            row = self.rows[index]
            row.tokens.append(token)
            row.logprobs.append(logprob)
            if (end := self._end(row)) is not None:
                row.job.finish(row.index, self._completion(row, *end))
                finished.append(index)
        if finished:
            self._remove(finished)

    def _end(self, row: Row) -> tuple[FinishReason, str] | None:
        """(reason, text) if the last token ends the row."""
        sampling = row.job.request.sampling
        ended = row.tokens[-1] in self.eos
        if sampling.stop and (text := self._stopped(row, sampling.stop)) is not None:
            return "stop", text
        if ended or len(row.tokens) == sampling.max_tokens:
            return "stop" if ended else "length", self._text(row.tokens[: -1 if ended else None])
        return None

    def _stopped(self, row: Row, stops: Sequence[str]) -> str | None:
        """The text before the first stop string, if there is one.

        At each token only the newest text is decoded, with enough before it to hold a stop string's beginning; the
        whole text decides.
        """
        fresh = self._text(row.tokens[row.read :])
        if any(stop in fresh for stop in stops):
            text = self._text(row.tokens)
            found = [position for stop in stops if (position := text.find(stop)) >= 0]
            if found:
                return text[: min(found)]
        longest = max(map(len, stops))
        if len(fresh) > 8 * (longest + 8):
            middle = (row.read + len(row.tokens)) // 2
            if len(self._text(row.tokens[middle:])) > longest + 4:  # a few more: decoding may trim the first characters
                row.read = middle
        return None

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def _completion(self, row: Row, reason: FinishReason, text: str) -> Completion:
        return Completion(tuple(row.tokens), tuple(row.logprobs), text, reason, self.policy, self.version)

    def _remove(self, indices: Sequence[int]) -> None:
        if len(indices) == len(self.rows):
            self.clear()
            return
        self._cache.remove(indices)
        close(self.rows, indices)
        self._knobs = None


def _chunks(lengths: Sequence[int], vocabulary: int) -> Iterator[tuple[int, int]]:
    """Ranges of ascending ``lengths`` within the budgets, of one prompt at least.

    Logits are computed at every distinct length's end for every prompt of the range, hence the second budget.
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
    """Rows a group may have: the widest of the present sizes that the padding of smaller groups does not eat up.

    Decoding costs about (groups x (width + the reading of the prompt's keys, worth a few rows)).
    """
    return min(sorted(set(sizes)), key=lambda width: sum(-(-size // width) for size in sizes) * (width + 4))

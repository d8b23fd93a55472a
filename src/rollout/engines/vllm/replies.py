"""A request in vLLM's terms, and vLLM's answer in Troupe's: what was sampled is what will be trained on."""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ....experience import Completion, Request, Sampling
from ..base import EngineError
from ..requests import label, order

LEAST_TEMPERATURE = 0.01
"""vLLM raises what is between 0 and this without being asked."""
ORDER = "troupe_order"
"""Of a request that is not due yet: where its place is in its round."""
CANDIDATES = "troupe_candidates"
"""Of a request that comes with several: how many."""


class ReplyMismatchError(EngineError):
    """An answer whose tokens or log-probabilities are not those of the request; nothing of it may be trained on."""


class Replies:
    """Translates.  ``refused`` counts the answers that did not fit."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        generation = getattr(model.generation_config, "eos_token_id", None)
        ids = generation if isinstance(generation, list) else [generation]
        self.tokenizer, self.refused = tokenizer, 0
        self._eos = sorted({int(i) for i in [*ids, tokenizer.eos_token_id] if i is not None})
        self._usual = cache(self._common)  # vLLM looks long at each that is made

    def parameters(self, request: Request, due: bool = True) -> Any:
        """vLLM's ``SamplingParams``.  A candidate's seed is the request's plus its index.

        What is not ``due`` carries its place in the order of keys.
        """
        parameters = copy(self._usual(request.sampling, request.n))
        parameters.seed = request.seed
        told: dict[str, Any] = {} if due else {ORDER: order(request)[:2]}  # the rest vLLM knows
        if request.n > 1:
            told[CANDIDATES] = request.n
        parameters.extra_args = told or None
        return parameters

    def _common(self, sampling: Sampling, n: int) -> Any:
        """What all requests of this kind say."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            n=n,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            stop=list(sampling.stop),
            stop_token_ids=self._eos,
            logprobs=0,  # of the sampled tokens alone
            detokenize=bool(sampling.stop),
            skip_special_tokens=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )

    def completions(self, request: Request, output: Any, version: int) -> list[Completion]:
        """Raises :class:`ReplyMismatchError`, naming policy and request."""
        answers = sorted(output.outputs, key=lambda answer: answer.index)
        if tuple(output.prompt_token_ids) != request.prompt_ids:
            self._refuse(request, "the prompt came back with other tokens")
        if [answer.index for answer in answers] != list(range(request.n)):
            self._refuse(request, f"{len(answers)} completions came back")
        return [self._completion(request, answer, version) for answer in answers]

    def _completion(self, request: Request, answer: Any, version: int) -> Completion:
        tokens = tuple(answer.token_ids)
        if answer.finish_reason not in ("stop", "length"):
            self._refuse(request, f"a completion ended with {answer.finish_reason!r}")
        if not tokens or len(answer.logprobs) != len(tokens):
            self._refuse(request, f"{len(tokens)} tokens came with {len(answer.logprobs)} log-probabilities")
        if any(token not in known for token, known in zip(tokens, answer.logprobs, strict=True)):
            self._refuse(request, "log-probabilities came of other tokens than those sampled")
        greedy = request.sampling.temperature == 0  # then the distribution sampled from is a point mass
        logprobs = (
            0.0 if greedy else known[token].logprob for token, known in zip(tokens, answer.logprobs, strict=True)
        )
        if isinstance(answer.stop_reason, str):  # a stop string: the text before it
            text = answer.text
        else:
            text = self.tokenizer.decode(
                list(tokens[: -1 if tokens[-1] in self._eos else None]), skip_special_tokens=True
            )
        return Completion(tokens, tuple(logprobs), str(text), answer.finish_reason, request.policy, version)

    def _refuse(self, request: Request, why: str) -> None:
        self.refused += 1
        raise ReplyMismatchError(f"{label(request)}: {why} ({self.refused} so far)")

"""A request in vLLM's terms, and vLLM's answer in Troupe's: what was sampled is what will be trained on."""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ....experience import Completion, Request, Sampling
from ..base import EngineError
from ..local import end_of_sequence
from ..requests import label

LEAST_TEMPERATURE = 0.01
"""vLLM raises a temperature between 0 and this without being asked."""


class ReplyMismatchError(EngineError):
    """An answer whose tokens or log-probabilities are not those of the request; nothing of it may be trained on."""


class Replies:
    """Translates.  ``seeded``: each request is sampled with its own seed.  ``refused`` counts the answers that did not
    fit.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, seeded: bool = True) -> None:
        self.tokenizer, self.seeded, self.refused = tokenizer, seeded, 0
        self._vocabulary: int = model.config.vocab_size
        self._eos = sorted(end_of_sequence(model, tokenizer))
        self._without_seed = cache(self._parameters)  # vLLM takes long to check each that is made

    def check(self, request: Request) -> None:
        """Raise ``ValueError`` for what vLLM does not sample: one such request would end the whole of its round."""
        if request.n < 1:
            raise ValueError(f"{label(request)}: n must be at least 1, got {request.n}")
        if 0 < (temperature := request.sampling.temperature) < LEAST_TEMPERATURE:
            raise ValueError(
                f"{label(request)}: vLLM raises a temperature below {LEAST_TEMPERATURE} to it, got {temperature}"
            )
        self.parameters(request)

    def parameters(self, request: Request) -> Any:
        """vLLM's ``SamplingParams``.  A candidate's seed, where it has one, is the request's plus its index."""
        parameters = copy(self._without_seed(request.sampling, request.n))
        parameters.seed = request.seed if self.seeded else None
        if request.on_token is not None:  # all tokens so far, after each
            parameters.output_kind = type(parameters.output_kind).CUMULATIVE
        return parameters

    def _parameters(self, sampling: Sampling, n: int) -> Any:
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
            logprobs=0,  # of the sampled tokens alone,
            flat_logprobs=True,  # as lists of numbers: an object a token would cost as much as all else here
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
        if not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
            self._refuse(request, f"a token is outside of the vocabulary of {self._vocabulary}")
        if tuple(answer.logprobs.token_ids) != tokens:
            self._refuse(request, "log-probabilities came of other tokens than those sampled")
        greedy = request.sampling.temperature == 0  # then the distribution sampled from is a point mass
        logprobs = (0.0,) * len(tokens) if greedy else tuple(answer.logprobs.logprobs)
        text = answer.text  # before the stop string
        if not isinstance(answer.stop_reason, str):
            text = self.tokenizer.decode(
                list(tokens[: -1 if tokens[-1] in self._eos else None]), skip_special_tokens=True
            )
        return Completion(tokens, logprobs, str(text), answer.finish_reason, request.policy, version)

    def _refuse(self, request: Request, why: str) -> None:
        self.refused += 1
        raise ReplyMismatchError(f"{label(request)}: {why} ({self.refused} so far)")

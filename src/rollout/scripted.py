"""Policies without a model: agents whose messages are written in advance, to test a sampler or to debug a world; the
demonstrator of the world speaks, or nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from torch import Tensor

from ..envs.base import ScriptedSkill, TeamEnv
from ..experience import Completion, Request, Task
from .engines.base import Weightless
from .playing import Answer, noting
from .policy_client import PolicyClient

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class NoEngine(Weightless):
    """The engine of a policy without a model."""

    async def generate(self, request: Request) -> list[Completion]:
        """Raises ``ValueError``: the messages come from the world, see :class:`ScriptedClient`."""
        raise ValueError(f"policy '{request.policy}' is scripted: it answers no prompt")

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """Raises ``ValueError``: there are no weights."""
        raise ValueError(f"policy '{policy}' is scripted: it is never trained, so it takes no weights")

    async def close(self) -> None:
        """Nothing."""


@dataclass(frozen=True, kw_only=True)
class ScriptedClient(PolicyClient):
    """A policy whose messages are those of the world's demonstrator, drawn with the request's seed: text alone, so
    that nothing is trained on them."""

    skill: ScriptedSkill

    async def complete(
        self,
        env: TeamEnv,
        agent: str,
        task: Task,
        n: int,
        seed: int,
        key: tuple[int | str, ...],
        said: Sequence[Completion] = (),
    ) -> Answer:
        """See :meth:`.policy_client.PolicyClient.complete`."""
        prompt, texts = self.prompt(env, agent, task), [""] * n
        if self.skill != "silent":
            with noting(lambda: f"demonstration of {type(env).__name__} in turn {env.turn} for agent {agent}"):
                texts = [env.demonstration(agent, Random(f"{seed}/{row}"), skill=self.skill) for row in range(n)]
        return Answer.of(prompt, *(Completion((), (), text, "stop", self.policy, 0, scripted=True) for text in texts))


Script = Callable[[str, int, int], str] | Mapping[str, str | Sequence[str]]
"""(Prompt, row, seed) -> text; or prompt -> text, or -> a text for each row.

The prompt is decoded without its special tokens; row counts from 0 to ``n - 1``; seed is the request's.
"""


class MissingAnswerError(LookupError):
    """A prompt, or a row of one, for which the script has no answer; the message quotes the prompt."""


class ScriptedEngine(Weightless):
    """Answers every request from ``script``, the same for every policy, and keeps the requests in ``requests``.

    A completion is the text's tokens and the end of sequence, cut at ``sampling.max_tokens``.  Log-probabilities are 0:
    a scripted answer is certain.  Temperature, truncation, stop strings and weights change nothing; a load only sets
    the version that a policy's completions carry.
    """

    def __init__(self, script: Script, tokenizer: PreTrainedTokenizerBase) -> None:
        self.script, self.tokenizer = script, tokenizer
        self.requests: list[Request] = []
        self.versions: dict[str, int] = {}

    async def generate(self, request: Request) -> list[Completion]:
        self.requests.append(request)
        prompt = self.tokenizer.decode(list(request.prompt_ids), skip_special_tokens=True)
        return [self._completion(request, self._text(prompt, row, request.seed)) for row in range(request.n)]

    def _text(self, prompt: str, row: int, seed: int) -> str:
        if callable(self.script):
            return self.script(prompt, row, seed)
        if prompt not in self.script:
            raise MissingAnswerError(f"the script has no answer to the prompt '{prompt}'")
        answer = self.script[prompt]
        if isinstance(answer, str):
            return answer
        if row >= len(answer):
            raise MissingAnswerError(
                f"the script has {len(answer)} answers, and none for row {row}, to the prompt '{prompt}'"
            )
        return answer[row]

    def _completion(self, request: Request, text: str) -> Completion:
        ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        too_long = len(ids) > request.sampling.max_tokens
        if too_long:
            ids = ids[: request.sampling.max_tokens]
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return Completion(
            token_ids=tuple(ids),
            logprobs=(0.0,) * len(ids),
            text=text,
            finish_reason="length" if too_long else "stop",
            policy=request.policy,
            version=self.versions.get(request.policy, 0),
        )

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        self.versions[policy] = version
        return {}

    async def close(self) -> None:
        pass

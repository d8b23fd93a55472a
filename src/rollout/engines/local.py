"""What the engines on this machine have in common: the callers that wait, the requests that are refused, the sizes of
a model's cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...experience import Completion, Request
from .base import EngineClosedError
from .lockstep import inside_hold
from .lora import Adapted
from .requests import check_prompt

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Answer = asyncio.Future[list[Completion]]


class LocalEngine:
    """The callers of an engine for the policies of ``models``, which serves in common rounds if ``lockstep``."""

    def __init__(self, models: Mapping[str, PreTrainedModel | Adapted], lockstep: bool) -> None:
        self.lockstep = lockstep
        self._configs = {policy: model.config for policy, model in models.items()}
        self._outstanding: set[Answer] = set()
        self._asleep = self._closed = False

    def _accept(self, request: Request) -> Answer:
        """What the caller of ``request`` waits for.

        Raises ``ValueError`` for an unknown policy and as :func:`.requests.check_prompt`; ``RuntimeError`` while asleep
        or inside :func:`.lockstep.hold`; :class:`.base.EngineClosedError`.
        """
        self._check_open("generate")
        if self._asleep:
            raise RuntimeError("the engine is asleep; call wake() before generate()")
        if self.lockstep and inside_hold():
            raise RuntimeError("generate() inside hold() would wait for itself")
        self._check_policy(request.policy)
        config = self._configs[request.policy]
        check_prompt(request, getattr(config, "max_position_embeddings", None), config.vocab_size)
        answer: Answer = asyncio.get_running_loop().create_future()
        self._outstanding.add(answer)
        answer.add_done_callback(self._outstanding.discard)
        return answer

    async def _served(self) -> None:
        """Until no caller waits."""
        if self._outstanding:
            await asyncio.wait(self._outstanding)

    def _check_open(self, method: str) -> None:
        if self._closed:
            raise EngineClosedError(f"{method}() after close()")

    def _check_policy(self, policy: str) -> None:
        if policy not in self._configs:
            raise ValueError(f"no policy '{policy}' in this engine; it has {', '.join(sorted(self._configs))}")


def fail(answers: Iterable[Answer], error: BaseException) -> None:
    """Hand ``error`` to every caller that still waits."""
    for answer in list(answers):
        if not answer.done():
            answer.set_exception(error)


def end_of_sequence(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The ids that end a completion: those of the model's generation config and the tokenizer's."""
    generation = getattr(model.generation_config, "eos_token_id", None)
    ids = generation if isinstance(generation, list) else [generation]
    return frozenset(int(i) for i in [*ids, tokenizer.eos_token_id] if i is not None)


def head_width(config: PretrainedConfig) -> int:
    """Numbers in an attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def key_value_heads(config: PretrainedConfig) -> int:
    """Heads of keys and values."""
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)


def inner_width(config: PretrainedConfig) -> int:
    """The width of the hidden layers between attentions, by the names that families of models have for it."""
    widths = (getattr(config, name, None) for name in ("intermediate_size", "ffn_dim", "n_inner"))
    return next((int(width) for width in widths if width), 4 * int(config.hidden_size))


def cache_numbers(config: PretrainedConfig, width: int | None = None) -> int:
    """Keys and values of one token, in all layers, with heads of ``width``; None: the model's own."""
    return 2 * int(config.num_hidden_layers) * key_value_heads(config) * (width or head_width(config))

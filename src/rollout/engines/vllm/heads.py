"""Attention heads of any width on a CPU: for some widths vLLM's kernel has code, others are filled up with zeros.

Zeros add nothing to the product of a query and a key, and values that end in zeros give a sum that ends in zeros, which
are cut off.  The scale is the model's own.  Weights stay as they are; the cache has room for the zeros.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn.functional import pad
from transformers import PretrainedConfig
from vllm.model_executor.layers.attention import Attention
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl

from ..base import UnsupportedModelError
from ..local import head_width
from .settings import VllmSettings, check_cache


def room(width: int) -> int | None:
    """The least width that is not below ``width`` and that the kernel has code for; None where there is none."""
    return min((known for known in CPUAttentionBackend.get_supported_head_sizes() if known >= width), default=None)


def check_heads(policy: str, config: PretrainedConfig, settings: VllmSettings) -> None:
    """Raise :class:`..base.UnsupportedModelError` for heads too wide, ``ValueError`` where the cache has no room for
    them.  vLLM looks at their width on a GPU alone; on a CPU its process would end at the first token.
    """
    own = head_width(config)
    if (width := room(own)) is None:
        raise UnsupportedModelError(f"policy '{policy}': vLLM on a CPU has no room for heads of {own}")
    check_cache(policy, config, settings, width)


class Filled(CPUAttentionBackendImpl):
    """vLLM's attention on a CPU; (tokens, heads, width) in and out."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._zeros = (room(self.head_size) or self.head_size) - self.head_size

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: Any,
        output: Tensor,
        *given: Any,
        **named: Any,
    ) -> Tensor:
        if not self._zeros or attn_metadata is None:  # None: nothing is computed
            return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, *given, **named)
        wide = self._wide(output)
        filled = map(self._wide, (query, key, value))
        super().forward(layer, *filled, kv_cache, attn_metadata, wide, *given, **named)
        return output.copy_(wide[..., : output.shape[-1]])

    def do_kv_cache_update(self, layer: Any, key: Tensor, value: Tensor, *given: Any, **named: Any) -> None:
        """Asked for by vLLM 0.32 before :meth:`forward`; with 0.22 that does it."""
        super().do_kv_cache_update(layer, self._wide(key), self._wide(value), *given, **named)

    def _wide(self, tensor: Tensor) -> Tensor:
        return pad(tensor, (0, self._zeros)) if self._zeros else tensor  # no copy of what is wide enough


def install() -> None:
    """On a CPU, in the process that holds the model, before there is one."""
    needs = Attention.get_kv_cache_spec

    def get_kv_cache_spec(layer: Any, *given: Any, **named: Any) -> Any:
        spec, wide = needs(layer, *given, **named), room(layer.head_size)
        if spec is None or wide == layer.head_size:
            return spec
        return replace(spec, head_size=wide, head_size_v=wide)

    Attention.get_kv_cache_spec = get_kv_cache_spec
    CPUAttentionBackend.get_impl_cls = staticmethod(lambda: Filled)

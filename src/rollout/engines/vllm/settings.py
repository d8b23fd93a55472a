"""The settings of ``engine=vllm``, checked without vLLM: a dry run and ``serve`` use them too."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from ....errors import AboveZero, Natural, Positive, check_above_zero, check_fields
from ..local import cache_numbers, inner_width, key_value_heads

if TYPE_CHECKING:
    from transformers import PretrainedConfig

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""How wide vLLM's buffers for adapters can be."""
VOCABULARY_UNIT = 64
"""vLLM fills a vocabulary up to a multiple of it."""
GIB = 1 << 30
GRAPHS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Rows for which a GPU's decoding is recorded; a step of other numbers is filled up to the next."""

WORTH_COMPILING = 10
"""Iterations in which a CPU's compiled rollouts have saved what compiling took; ``docs/vllm/measured.md``."""


@dataclass(frozen=True)
class VllmSettings:
    """How an engine runs; ``configs/engine/vllm.yaml`` says what each key is.  Raises ``ValueError`` naming the key."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    kv_cache_gib: float = 0.5
    block_size: Positive = 32
    max_batch_rows: Positive = 256
    threads: Positive = 1
    stall_s: AboveZero = 300.0
    restarts: Natural = 3
    lora: Literal["adapter", "merged"] = "adapter"
    device: str = "auto"
    transfer: Literal["auto", "shared_memory", "ipc", "nccl"] = "auto"
    sleep: Literal[0, 1, 2] = 0
    eager: bool | str = "auto"
    iterations: Natural = 0
    tensor_parallel: Positive = 1
    data_parallel: Positive = 1

    def __post_init__(self) -> None:
        check_above_zero("engine.kv_cache_gib", self.kv_cache_gib, sys.float_info.max)
        check_fields(self, "engine.")
        if not isinstance(self.eager, bool) and self.eager != "auto":
            raise ValueError(f"engine.eager must be auto, true or false, got {self.eager!r}")
        if self.device != "auto" and not re.fullmatch(r"cuda:\d+", self.device):
            raise ValueError(f"engine.device must be auto or a GPU such as cuda:1, got {self.device!r}")
        if self.tensor_parallel > 1 and self.transfer not in ("auto", "shared_memory"):
            raise ValueError(
                f"engine.transfer={self.transfer} brings weights to one GPU, and engine.tensor_parallel="
                f"{self.tensor_parallel} computes on several; give auto or shared_memory"
            )

    def check(self, policies: Sequence[str], config: PretrainedConfig, rank: int) -> None:
        """Raise ``ValueError``, naming key or policies, for policies whose adapters have at most ``rank``; 0: none."""
        label = ", ".join(policies)
        if rank and self.lora == "adapter":
            buffer_width(label, rank)
        elif rank and len(policies) > 1:
            raise ValueError(
                f"engine.lora=merged: {label} speak with one model, which cannot hold the merged weights of each; give "
                "engine.lora=adapter"
            )
        check_shards(label, config, self.tensor_parallel)
        check_cache(label, config, self)

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def compilation(self, *, gpu: bool) -> dict[str, Any]:
        """vLLM's arguments for ``eager``.

        ``auto`` records a GPU's decoding as CUDA graphs and compiles nothing: of a small model's step nearly all are
        launches, which graphs remove in seconds at the start; what compiling adds takes a minute.  On a CPU it compiles
        for a run of :data:`WORTH_COMPILING` iterations or more, where there is a C++ compiler.
        """
        if self.eager != "auto":
            return {"enforce_eager": self.eager}
        if not gpu:
            compiler = shutil.which((os.environ.get("CXX", "").split() or ["g++"])[0])
            return {"enforce_eager": compiler is None or self.iterations < WORTH_COMPILING}
        rows = [*(count for count in GRAPHS if count < self.max_batch_rows), min(self.max_batch_rows, GRAPHS[-1])]
        return {
            "enforce_eager": False,
            "compilation_config": {
                "mode": 0,
                "cudagraph_mode": "FULL_DECODE_ONLY",
                "cudagraph_capture_sizes": sorted(set(rows)),
            },
        }


def check_cache(policy: str, config: PretrainedConfig, settings: VllmSettings, head_width: int | None = None) -> None:
    """Raise ``ValueError``, saying how much is needed, where the cache cannot hold one sequence of full length, with
    heads of ``head_width`` (None: the model's own).  A tensor parallel process has a cache for its key-value heads.
    """
    blocks = -(-config.max_position_embeddings // settings.block_size) + 1  # vLLM keeps one to itself
    heads = key_value_heads(config)
    numbers = cache_numbers(config, head_width) // heads * max(1, heads // settings.tensor_parallel)
    needed = blocks * settings.block_size * numbers * settings.torch_dtype.itemsize
    if needed > settings.kv_cache_gib * GIB:
        raise ValueError(
            f"engine.kv_cache_gib={settings.kv_cache_gib:g} is too little for policy '{policy}': one sequence of "
            f"{config.max_position_embeddings} tokens, its context, needs {needed / GIB:.3g} GiB"
        )


def check_shards(policy: str, config: PretrainedConfig, ranks: int) -> None:
    """Raise ``ValueError``, saying which numbers would do, where vLLM cannot divide a model's layers among ``ranks``
    processes.
    """
    if ranks > 1 and not _divisible(config, ranks):
        possible = [n for n in range(1, config.num_attention_heads + 1) if _divisible(config, n)]
        raise ValueError(
            f"engine.tensor_parallel={ranks}: the model of policy '{policy}', with {config.num_attention_heads} "
            f"attention heads, {key_value_heads(config)} key-value heads, {config.vocab_size} tokens and hidden layers "
            f"of {inner_width(config)}, cannot be divided so; give {', '.join(map(str, possible))}"
        )


def _divisible(config: PretrainedConfig, ranks: int) -> bool:
    """Several processes may have the same key-value head; a vocabulary is filled up."""
    heads, rows = key_value_heads(config), -(-config.vocab_size // VOCABULARY_UNIT) * VOCABULARY_UNIT
    sizes = config.num_attention_heads, inner_width(config), rows, max(heads, ranks)
    return not any(size % ranks for size in sizes) and not max(heads, ranks) % heads


def buffer_width(policy: str, rank: int) -> int:
    """Of vLLM's buffers for adapters of at most ``rank``.  Raises ``ValueError``, naming the policy, beyond all."""
    if rank > RANKS[-1]:
        raise ValueError(f"policy '{policy}': vLLM runs adapters of rank r <= {RANKS[-1]}, got {rank}")
    return min(width for width in RANKS if width >= rank)

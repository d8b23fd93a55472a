"""What vLLM's CPU build is not started for."""

import copy

import pytest
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.rollout.engines.base import UnsupportedModelError
from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.rollout.engines.vllm.launch import GIB

from .conftest import NEEDS_VLLM, Build

pytestmark = NEEDS_VLLM
POLICY = "plan"


def test_heads_wider_than_the_cpu_runs_are_refused(build: Build, digits: PreTrainedTokenizerFast) -> None:
    with pytest.raises(UnsupportedModelError, match=r"policy 'plan': vLLM on a CPU has no room for heads of 520"):
        VllmEngine({POLICY: build(head_dim=520)}, digits)


def test_a_cache_too_small_for_heads_that_are_filled_up_is_refused(
    build: Build, digits: PreTrainedTokenizerFast
) -> None:
    needed = 2 * 2 * 32 * (256 + 32) * 4 / GIB  # keys and values, 2 layers, 32 for 24, tokens and a block, float32
    with pytest.raises(ValueError, match=rf"kv_cache_gib.*policy 'plan'.*256 tokens.*needs {needed:.3g} GiB"):
        VllmEngine({POLICY: build(head_dim=24)}, digits, kv_cache_gib=0.9 * needed)


def test_a_model_that_vllm_does_not_know_is_refused(build: Build, digits: PreTrainedTokenizerFast) -> None:
    model = build()
    model.config.architectures, model.config.model_type = ["StrangeForCausalLM"], "qwen3"
    strange = copy.deepcopy(model)
    strange.__class__ = type("StrangeForCausalLM", (Qwen3ForCausalLM,), {})
    with pytest.raises(UnsupportedModelError, match=r"policy 'plan': vLLM does not run StrangeForCausalLM"):
        VllmEngine({POLICY: strange}, digits, kv_cache_gib=0.05)


def test_a_way_from_gpu_to_gpu_is_refused_on_a_cpu(build: Build, digits: PreTrainedTokenizerFast) -> None:
    for wrong in ({"transfer": "ipc"}, {"transfer": "nccl"}, {"device": "cuda:0"}):
        key, value = next(iter(wrong.items()))
        with pytest.raises(ValueError, match=rf"engine\.{key}={value}.*this vLLM computes on a CPU"):
            VllmEngine({POLICY: build()}, digits, kv_cache_gib=0.05, **wrong)  # type: ignore[arg-type]

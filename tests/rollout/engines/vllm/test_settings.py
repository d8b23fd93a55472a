"""Settings that are refused before anything starts."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.rollout.engines.vllm.settings import GIB, WORTH_COMPILING, VllmSettings, buffer_width, check_cache

from .conftest import Build, adapted, install


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "int8"},
        {"kv_cache_gib": 0},
        {"kv_cache_gib": "1GiB"},
        {"kv_cache_gib": float("nan")},
        {"kv_cache_gib": float("inf")},
        {"block_size": 0},
        {"block_size": True},
        {"max_batch_rows": 0},
        {"threads": 0},
        {"threads": 1.5},
        {"stall_s": 0},
        {"stall_s": None},
        {"restarts": -1},
        {"restarts": "never"},
        {"lora": "fused"},
        {"device": "gpu"},
        {"transfer": "http"},
        {"sleep": 3},
        {"eager": "no"},
        {"tensor_parallel": 0},
        {"tensor_parallel": "auto"},
        {"data_parallel": 0},
        {"data_parallel": 1.5},
    ],
    ids=lambda wrong: " ".join(map(str, *wrong.items())),
)
def test_settings_out_of_range_are_refused_by_key(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=rf"engine\.{next(iter(wrong))} must be"):
        VllmSettings(**wrong)


def test_a_cache_too_small_for_one_sequence_says_what_is_needed(build: Build) -> None:
    config = build().config
    # (tokens and a block that vLLM keeps to itself) x keys and values x layers x heads x width x bytes
    needed = (config.max_position_embeddings + 32) * 2 * 2 * 1 * 32 * 4 / GIB
    check_cache("plan", config, VllmSettings(kv_cache_gib=needed))
    with pytest.raises(ValueError, match=rf"engine\.kv_cache_gib.*'plan'.*256 tokens.*{needed:.3g} GiB"):
        check_cache("plan", config, VllmSettings(kv_cache_gib=needed * 0.99))


def test_the_cache_of_a_shard_has_its_heads(build: Build) -> None:
    needed = (256 + 32) * 2 * 2 * 2 * 32 * 4 / GIB  # of 4 key-value heads 2
    config = build(num_attention_heads=4, num_key_value_heads=4).config
    check_cache("plan", config, VllmSettings(kv_cache_gib=needed, tensor_parallel=2))
    with pytest.raises(ValueError, match=rf"engine\.kv_cache_gib.*{needed:.3g} GiB"):
        check_cache("plan", config, VllmSettings(kv_cache_gib=needed * 0.99, tensor_parallel=2))


@pytest.mark.parametrize(
    ("changes", "possible"),
    [
        ({"num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 384, "intermediate_size": 96}, {1, 2, 6}),
        ({"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 60, "intermediate_size": 96}, {1, 2, 4}),
        ({"num_attention_heads": 3, "num_key_value_heads": 3, "vocab_size": 60, "intermediate_size": 96}, {1}),
        ({"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64, "intermediate_size": 98}, {1, 2}),
    ],
    ids=["heads that several shards have", "each its own", "vocabulary", "hidden layer"],
)
def test_a_model_that_cannot_be_divided_so_is_refused_with_what_would_do(
    build: Build, changes: dict[str, int], possible: set[int]
) -> None:
    with torch.device("meta"):
        config = build(**changes).config
    for count in range(1, 9):
        settings = VllmSettings(tensor_parallel=count)
        if count in possible:
            settings.check(["plan"], config, 0)
            continue
        numbers = ", ".join(map(str, sorted(possible)))
        with pytest.raises(ValueError, match=rf"engine\.tensor_parallel={count}: .*'plan'.*; give {numbers}$"):
            settings.check(["plan"], config, 0)


def test_ways_to_one_gpu_are_refused_for_several() -> None:
    with pytest.raises(ValueError, match=r"engine\.transfer=nccl brings weights to one GPU, .*tensor_parallel=2"):
        VllmSettings(transfer="nccl", tensor_parallel=2)


def test_ranks_beyond_vllms_are_refused_by_policy(build: Build) -> None:
    assert [buffer_width("plan", rank) for rank in (1, 2, 8, 9, 512)] == [1, 8, 8, 16, 512]
    with pytest.raises(ValueError, match=r"policy 'plan': vLLM runs adapters of rank r <= 512, got 513"):
        VllmSettings().check(["plan"], build().config, 513)


def test_an_engine_refuses_several_models_and_several_merged_adapters(
    monkeypatch: pytest.MonkeyPatch, build: Build, digits: PreTrainedTokenizerFast
) -> None:
    install(monkeypatch, vllm="0.32.0", torch="2.13.0")
    with pytest.raises(ValueError, match="has one model, and policies with adapters on it, got a, b"):
        VllmEngine({"a": build(), "b": build()}, digits)
    base = build()
    with pytest.raises(ValueError, match=r"engine\.lora=merged: a, b speak with one model"):
        VllmEngine({"a": adapted(base), "b": adapted(base)}, digits, lora="merged")
    with pytest.raises(ValueError, match=r"engine\.lora must be adapter or merged, got 'fused'"):
        VllmEngine({"a": build()}, digits, lora="fused")


def test_a_gpu_decodes_by_cuda_graphs_up_to_the_rows_of_a_batch() -> None:
    config = VllmSettings(max_batch_rows=40).compilation(gpu=True)["compilation_config"]
    assert config["cudagraph_mode"] == "FULL_DECODE_ONLY"
    assert config["cudagraph_capture_sizes"] == [1, 2, 4, 8, 16, 24, 32, 40]
    assert (
        VllmSettings(max_batch_rows=4096).compilation(gpu=True)["compilation_config"]["cudagraph_capture_sizes"][-1]
        == 512
    )
    assert VllmSettings(eager=False).compilation(gpu=True) == {"enforce_eager": False}


def test_a_cpu_compiles_for_a_run_that_is_long_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def eager(iterations: int, choice: bool | str = "auto") -> bool:
        return VllmSettings(iterations=iterations, eager=choice).compilation(gpu=False)["enforce_eager"]

    assert eager(WORTH_COMPILING, True) and not eager(0, False)
    monkeypatch.setenv("CXX", sys.executable)  # something that is there
    assert [eager(n) for n in (0, WORTH_COMPILING - 1, WORTH_COMPILING)] == [True, True, False]
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    assert eager(WORTH_COMPILING)

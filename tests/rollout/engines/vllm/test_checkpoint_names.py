"""Tensors under the checkpoint's names, of modules that fuse, pad, tie and pack weights as vLLM's do."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn

from troupe.rollout.engines.vllm.checkpoint_names import Shards, model_tensors
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


# ---- tensor parallel ------------------------------------------------------------------------------------------------


class Shard(nn.Module):
    """A layer of one process, as vLLM's: ``size`` is (outputs, inputs) of the whole."""

    def __init__(self, weight: Tensor, size: tuple[int, int], bias: Tensor | None = None, **attributes: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        if bias is not None:
            self.bias = nn.Parameter(bias)
        self.output_size, self.input_size = size
        self.output_size_per_partition, self.input_size_per_partition = weight.shape
        for name, value in attributes.items():
            setattr(self, name, value)


class Processes:
    """Threads in the place of processes, each with its network; what one gathers all have."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self.networks, self.barrier = networks, Barrier(len(networks), timeout=30)
        self.slots: list[Tensor] = [torch.empty(0)] * len(networks)

    def gather(self, rank: int, shard: Tensor) -> Tensor:
        self.slots[rank] = shard
        self.barrier.wait()
        stacked = torch.stack(self.slots)
        self.barrier.wait()
        return stacked

    def tensors(self) -> list[dict[str, Tensor]]:
        def of(rank: int) -> dict[str, Tensor]:
            return dict(model_tensors(self.networks[rank], Shards(rank, partial(self.gather, rank))))

        with ThreadPoolExecutor(len(self.networks)) as threads:
            return list(threads.map(of, range(len(self.networks))))


def divided(weights: Mapping[str, Tensor], ranks: int) -> Processes:
    """4 heads of queries and 2 of keys and values, each 2 wide; a layer by inputs with a bias; 11 tokens, of 16."""

    def network(rank: int) -> nn.Module:
        q = weights["layer.q_proj.weight"].chunk(ranks)[rank]
        copies = max(1, ranks // 2)
        k, v = (weights[f"layer.{name}_proj.weight"].chunk(ranks // copies)[rank // copies] for name in "kv")
        fused = torch.cat([q, k, v])
        down = weights["layer.down_proj.weight"].chunk(ranks, dim=1)[rank].contiguous()
        padded = torch.cat([weights["embed.weight"], torch.zeros(5, 4)]).chunk(ranks)[rank]
        module, layer = nn.Module(), nn.Module()
        module.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}  # type: ignore[assignment]
        layer.qkv_proj = Shard(
            fused.clone(),
            (len(fused) * ranks, 4),
            output_partition_sizes=[len(q), len(k), len(v)],
            num_kv_head_replicas=copies,
        )
        layer.down_proj = Shard(down.clone(), (4, 8), weights["layer.down_proj.bias"].clone())
        layer.norm = nn.LayerNorm(4, bias=False)
        layer.norm.weight.data = weights["layer.norm.weight"].clone()
        module.layer, module.embed = layer, Shard(padded.clone(), (16, 4), org_vocab_size=11)
        return module

    return Processes([network(rank) for rank in range(ranks)])


def whole() -> dict[str, Tensor]:
    torch.manual_seed(0)
    shapes = {"layer.q_proj.weight": (8, 4), "layer.k_proj.weight": (4, 4), "layer.v_proj.weight": (4, 4)}
    shapes |= {"layer.down_proj.weight": (4, 8), "layer.down_proj.bias": (4,), "layer.norm.weight": (4,)}
    return {name: torch.randn(shape) for name, shape in (shapes | {"embed.weight": (11, 4)}).items()}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_process_tells_of_the_whole_of_what_is_divided(ranks: int) -> None:
    weights = whole()
    for tensors in divided(weights, ranks).tensors():
        assert set(tensors) == set(weights)
        assert all(torch.equal(tensors[name], weights[name]) for name in weights)


@pytest.mark.parametrize(
    ("layer", "row", "name", "blamed"),
    [
        ("layer.qkv_proj", 0, "layer.q_proj.weight", [0, 1, 2, 3]),
        ("layer.qkv_proj", 2, "layer.k_proj.weight", [1, 3]),  # the copies of the second process of each head
        ("layer.qkv_proj", 4, "layer.v_proj.weight", [1, 3]),
        ("layer.down_proj", 0, "layer.down_proj.weight", [0, 1, 2, 3]),
        ("layer.norm", 0, "layer.norm.weight", [3]),
        ("embed", 0, None, []),  # what fills the vocabulary up
    ],
)
def test_a_wrong_number_in_the_last_of_four_processes_is_noticed_by_those_that_compute_with_it(
    layer: str, row: int, name: str | None, blamed: list[int]
) -> None:
    weights = whole()
    processes = divided(weights, 4)
    processes.networks[3].get_submodule(layer).weight.data[row] += 1  # type: ignore[operator, union-attr]
    for rank, tensors in enumerate(processes.tensors()):
        wrong = [each for each in weights if not torch.equal(tensors[each], weights[each])]
        assert wrong == ([name] if rank in blamed else [])

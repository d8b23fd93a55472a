"""Weights in shards: a module divided over processes by torch's ``fully_shard`` or by DeepSpeed's ZeRO 3, its whole
tensors, and a process's part of a whole one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from ...rollout.engines.weights import check_fit
from .zero import in_zero3, torch_optimizer, whole_shape, zero3_gathered


class Gathering(nn.Module):
    """Calls ``module``, which is sharded.

    Fabric calls a ``training_step`` through the module's ``forward``, where ``fully_shard`` gathers the weights, if the
    strategy has put the module into another one, as DDP does.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self.module(*arguments, **keywords)


def shard(
    module: nn.Module, layers: Collection[str], kept: set[nn.Parameter], mesh: DeviceMesh, *, offload: bool
) -> None:
    """Divide the parameters of ``module`` among the processes of ``mesh``, in place; those in ``kept`` stay whole.

    Submodules of the classes ``layers`` are gathered one at a time, while they compute; what is outside of them, for
    the whole of a forward and backward pass.  Gradients are summed over the processes.
    """
    flat = init_device_mesh(mesh.device_type, (mesh.size(),), mesh_dim_names=("shards",))
    policy = CPUOffloadPolicy() if offload else OffloadPolicy()
    for each in [*(part for part in module.modules() if type(part).__name__ in layers), module]:
        sharded = fully_shard(each, mesh=flat, offload_policy=policy, ignored_params=kept)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo can only add


def is_sharded(module: nn.Module) -> bool:
    """Whether :func:`shard` or ZeRO 3 has divided ``module``."""
    return isinstance(module, FSDPModule) or any(map(in_zero3, module.parameters()))


def release_shards(module: nn.Module) -> None:
    """Free what a forward pass without a backward pass has left gathered.  No effect on a module that is whole."""
    if isinstance(module, FSDPModule):
        module.reshard()


def whole(value: Any) -> Any:
    """A tensor in shards as a whole one, and anything else as it is.  All processes must call it alike."""
    if in_zero3(value):
        with zero3_gathered(value):
            return value.clone()
    return value.full_tensor() if isinstance(value, DTensor) else value


@torch.no_grad()
def whole_state(module: nn.Module) -> dict[str, Tensor]:
    """The state of ``module`` in whole tensors, which are no copies where they are not in shards.

    All processes must call it alike.  A tied weight is one tensor with two names.
    """
    state = module.state_dict(keep_vars=True)
    gathered = {tensor: whole(tensor).detach() for tensor in dict.fromkeys(state.values())}
    return {name: gathered[tensor] for name, tensor in state.items()}


@torch.no_grad()
def load_shards(policy: str, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy into ``module`` this process's part of ``weights``, which are whole and the same in all processes.

    Raises as :func:`...rollout.engines.weights.check_fit`; nothing is changed then.
    """
    own = module.state_dict(keep_vars=True)
    tied: dict[Tensor, list[str]] = {}
    for name, tensor in own.items():
        tied.setdefault(tensor, []).append(name)
    check_fit(policy, list(tied.values()), {name: whole_shape(tensor) for name, tensor in own.items()}, weights)
    for name in sorted(own.keys() & weights.keys()):  # in one order in all processes
        with zero3_gathered(own[name]):
            own[name].copy_(_part(weights[name], own[name]))


def optimizer_state(optimizer: Optimizer, *, gathered: bool) -> dict[str, Any]:
    """The state of ``optimizer``, without shards: ``gathered`` whole (all processes must call it alike), else as this
    process's part of each tensor, which is all that there is of DeepSpeed's.
    """
    with torch_optimizer(optimizer) as inner:
        state = inner.state_dict()
    plain = {
        index: {key: _plain(value, gathered=gathered) for key, value in values.items()}
        for index, values in state["state"].items()
    }
    return {**state, "state": plain}


def load_optimizer_state(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Restore what :func:`optimizer_state` returned, of either form.  Raises ``ValueError`` for what does not fit."""
    with torch_optimizer(optimizer) as inner:
        _load(inner, state)


def _load(inner: Optimizer, state: Mapping[str, Any]) -> None:
    parameters = [parameter for group in inner.param_groups for parameter in group["params"]]
    check_keys("optimizer", state, {"state": {}, "param_groups": []})
    known = inner.state_dict()["param_groups"]
    if len(state["param_groups"]) != len(known):
        raise ValueError(f"optimizer has {len(state['param_groups'])} groups of parameters, not {len(known)}")
    for saved, own in zip(state["param_groups"], known, strict=True):
        check_keys("param_groups", saved, own)
    # What another's optimizer keeps of a parameter may have any shape.
    same = type(getattr(inner, "optimizer", inner)).__module__.startswith("torch.")
    parts: dict[int, dict[str, Any]] = {}
    for index, values in state["state"].items():
        if index not in range(len(parameters)) or not isinstance(values, dict):
            raise ValueError(f"optimizer has a state of parameter {index}, of {len(parameters)}")
        for key, value in values.items():
            if same and not _has_shape(value, parameters[index]):
                wrong = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"optimizer: {key} of a parameter of {tuple(parameters[index].shape)} is {wrong}")
        parts[index] = {key: _part(value, parameters[index]) for key, value in values.items()}
    inner.load_state_dict({**state, "state": parts})


def check_keys(name: str, saved: Any, own: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless ``saved`` has keys of ``own`` only, each with a value of its kind: a list for a list,
    keys for keys, and else a number or a text.  Older versions have fewer keys."""
    if not isinstance(saved, Mapping):
        raise ValueError(f"{name} must hold keys")
    for key, value in saved.items():
        if key not in own:
            raise ValueError(f"{name} has the unknown key {key!r}")
        if _kind(value) != _kind(own[key]) or (key == "params" and value != own[key]):
            raise ValueError(f"{name}: {key} does not fit")


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "keys"
    return "list" if isinstance(value, list | tuple) else "value"


def _has_shape(value: Any, like: Tensor) -> bool:
    """Whether ``value`` is a number, or a tensor of one, or has the shape of ``like`` (or of its shards; along some
    dimensions it may be a mean).  :func:`_part` refuses other shards."""
    if not isinstance(value, Tensor) or not value.dim() or isinstance(like, DTensor):
        return value is None or isinstance(value, int | float | Tensor)
    return value.dim() == like.dim() and all(a in (1, b) for a, b in zip(value.shape, like.shape, strict=True))


def _plain(value: Any, *, gathered: bool) -> Any:
    if not isinstance(value, DTensor):
        return value
    return (value.full_tensor() if gathered else value.to_local()).cpu()


def _part(value: Any, like: Tensor) -> Any:
    """``value``, whole or this process's part of it, in shards as ``like``; unchanged where that is not in shards, and
    where it is a number.
    """
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or not value.dim():
        return value
    mesh, placements, local = like.device_mesh, like.placements, like.to_local()
    if value.shape == like.shape:
        return distribute_tensor(value.to(local.device, value.dtype), mesh, placements, src_data_rank=None)
    if value.shape == local.shape:
        value = value.to(local.device)
        return DTensor.from_local(value, mesh, placements, run_check=False, shape=like.shape, stride=like.stride())
    raise ValueError(
        f"a tensor of {tuple(value.shape)} is neither {tuple(like.shape)} nor a shard {tuple(local.shape)}"
    )

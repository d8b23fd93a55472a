"""Where an engine runs and how weights get there, for every combination of learner, engine and keys."""

from typing import Any

import pytest
import torch

from troupe.rollout.engines.vllm.placement import Placement, check_adapters, place
from troupe.rollout.engines.vllm.settings import VllmSettings

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


def placed(
    device: str = "auto", transfer: str = "auto", *, tensor: int = 1, data: int = 1, **where: Any
) -> tuple[Placement, ...]:
    settings = VllmSettings(device=device, transfer=transfer, tensor_parallel=tensor, data_parallel=data)
    return place(settings, **where)


@pytest.mark.parametrize(
    ("device", "transfer", "learner", "gpus", "expected"),
    [
        ("auto", "auto", CPU, None, Placement((), "shared_memory")),
        ("auto", "shared_memory", CPU, None, Placement((), "shared_memory")),
        ("auto", "auto", FIRST, 1, Placement((0,), "ipc")),
        ("auto", "auto", SECOND, 2, Placement((1,), "ipc")),
        ("auto", "auto", torch.device("cuda"), 2, Placement((0,), "ipc")),
        ("cuda:1", "auto", FIRST, 2, Placement((1,), "nccl")),
        ("cuda:1", "nccl", FIRST, 2, Placement((1,), "nccl")),
        ("cuda:0", "ipc", FIRST, 2, Placement((0,), "ipc")),
        ("auto", "shared_memory", FIRST, 1, Placement((0,), "shared_memory")),
        ("auto", "auto", CPU, 1, Placement((0,), "shared_memory")),
    ],
)
def test_auto_is_the_learners_gpu_and_the_way_that_fits(
    device: str, transfer: str, learner: torch.device, gpus: int | None, expected: Placement
) -> None:
    assert placed(device, transfer, learner=learner, gpus=gpus) == (expected,)


@pytest.mark.parametrize(
    ("device", "transfer", "learner", "gpus", "message"),
    [
        ("cuda:0", "auto", CPU, None, r"engine\.device=cuda:0: this vLLM computes on a CPU; give auto"),
        (
            "auto",
            "ipc",
            CPU,
            None,
            r"engine\.transfer=ipc goes from one GPU memory to another.*on a CPU; give auto or sh",
        ),
        (
            "auto",
            "nccl",
            CPU,
            None,
            r"engine\.transfer=nccl goes from one GPU memory to another, and this vLLM computes",
        ),
        ("cuda:2", "auto", FIRST, 2, r"engine\.device=cuda:2: there is no such GPU as cuda:2, only 2, counted from 0$"),
        ("cuda:1", "ipc", FIRST, 2, r"engine\.transfer=ipc needs both on one GPU.*on cuda:0, the engine is on cuda:1"),
        ("auto", "ipc", CPU, 1, r"engine\.transfer=ipc needs both on one GPU.*weights are on cpu, the engine is on cu"),
        ("auto", "nccl", FIRST, 1, r"engine\.transfer=nccl needs two GPUs.*on cuda:0, the engine is on cuda:0; give a"),
        (
            "auto",
            "auto",
            CPU,
            0,
            r"this vLLM computes on a GPU, and its process sees none; .*resources\.engine\.gpus=1",
        ),
        ("auto", "nccl", CPU, 1, r"engine\.transfer=nccl needs two GPUs, but the learner's weights are on cpu"),
    ],
)
def test_what_cannot_be_is_refused_by_key(
    device: str, transfer: str, learner: torch.device, gpus: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        placed(device, transfer, learner=learner, gpus=gpus)


def test_several_learner_processes_do_not_send_by_ipc() -> None:
    assert placed("auto", "auto", learner=FIRST, gpus=2, alone=False) == (Placement((0,), "shared_memory"),)
    assert placed("cuda:1", "auto", learner=FIRST, gpus=2, alone=False) == (Placement((1,), "nccl"),)
    with pytest.raises(ValueError, match=r"ipc needs .* a learner of one process, but .*, in several processes"):
        placed("auto", "ipc", learner=FIRST, gpus=2, alone=False)


def test_what_vllm_cannot_do_with_adapters_is_refused_by_key() -> None:
    check_adapters("bfloat16", 2, reloads=True)
    check_adapters("float16", 1, reloads=False)
    with pytest.raises(ValueError, match=r"engine\.dtype=float32: on a GPU, vLLM adds adapters in bfloat16 or float16"):
        check_adapters("float32", 0, reloads=True)
    with pytest.raises(ValueError, match=r"engine\.sleep=2: this vLLM cannot load a model again"):
        check_adapters("bfloat16", 2, reloads=False)


def test_shards_and_replicas_follow_each_other_on_gpus() -> None:
    two_by_two = {"tensor": 2, "data": 2, "learner": FIRST}
    shared = [Placement(gpus, "shared_memory") for gpus in ((0, 1), (2, 3), (4, 5))]
    assert placed(**two_by_two, gpus=8) == tuple(shared[:2])
    assert placed("cuda:2", **two_by_two, gpus=6) == tuple(shared[1:])
    # From the learner's on, as far as there are enough behind it.
    assert placed(tensor=2, learner=torch.device("cuda:3"), gpus=4) == (Placement((2, 3), "shared_memory"),)
    # A replica of one process has the way that fits its GPU.
    assert placed(data=2, learner=FIRST, gpus=2) == (Placement((0,), "ipc"), Placement((1,), "nccl"))
    assert placed(tensor=2, data=3, learner=CPU, gpus=None) == (Placement((), "shared_memory"),) * 3


def test_too_few_gpus_for_shards_and_replicas_are_refused_by_key() -> None:
    keys = r"engine\.tensor_parallel=2 with engine\.data_parallel=2"
    with pytest.raises(ValueError, match=rf"{keys} needs 4 GPUs, and this process sees 3"):
        placed(tensor=2, data=2, learner=FIRST, gpus=3)
    with pytest.raises(ValueError, match=rf"engine\.device=cuda:1: there is no such GPU as cuda:4, .* \({keys}\)"):
        placed("cuda:1", tensor=2, data=2, learner=FIRST, gpus=4)
    with pytest.raises(ValueError, match=rf"{keys} needs 4 GPUs, and each of the learner's processes .*policies\.NAME"):
        placed(tensor=2, data=2, learner=FIRST, gpus=8, alone=False)
    with pytest.raises(ValueError, match=r"execution\.resources\.engine\.gpus=2"):
        placed(tensor=2, learner=CPU, gpus=0)
    with pytest.raises(ValueError, match=r"engine\.transfer=ipc needs both on one GPU.*the engine is on cuda:1"):
        placed("auto", "ipc", data=2, learner=FIRST, gpus=2)

"""Where an engine runs and how weights get there, for every combination of learner, engine and keys."""

import pytest
import torch

from troupe.rollout.engines.vllm.placement import Placement, check_adapters, place

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


@pytest.mark.parametrize(
    ("device", "transfer", "learner", "gpus", "expected"),
    [
        ("auto", "auto", CPU, None, Placement(None, "shared_memory")),
        ("auto", "shared_memory", CPU, None, Placement(None, "shared_memory")),
        ("auto", "auto", FIRST, 1, Placement(0, "ipc")),
        ("auto", "auto", SECOND, 2, Placement(1, "ipc")),
        ("auto", "auto", torch.device("cuda"), 2, Placement(0, "ipc")),
        ("cuda:1", "auto", FIRST, 2, Placement(1, "nccl")),
        ("cuda:1", "nccl", FIRST, 2, Placement(1, "nccl")),
        ("cuda:0", "ipc", FIRST, 2, Placement(0, "ipc")),
        ("auto", "shared_memory", FIRST, 1, Placement(0, "shared_memory")),
        ("auto", "auto", CPU, 1, Placement(0, "shared_memory")),
    ],
)
def test_auto_is_the_learners_gpu_and_the_way_that_fits(
    device: str, transfer: str, learner: torch.device, gpus: int | None, expected: Placement
) -> None:
    assert place(device, transfer, learner=learner, gpus=gpus) == expected


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
        ("cuda:2", "auto", FIRST, 2, r"engine\.device=cuda:2: there is no such GPU, only 2, counted from 0"),
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
        place(device, transfer, learner=learner, gpus=gpus)


def test_several_learner_processes_do_not_send_by_ipc() -> None:
    assert place("auto", "auto", learner=FIRST, gpus=2, alone=False) == Placement(0, "shared_memory")
    assert place("cuda:1", "auto", learner=FIRST, gpus=2, alone=False) == Placement(1, "nccl")
    with pytest.raises(ValueError, match=r"ipc needs .* a learner of one process, but .*, in several processes"):
        place("auto", "ipc", learner=FIRST, gpus=2, alone=False)


def test_what_vllm_cannot_do_with_adapters_is_refused_by_key() -> None:
    check_adapters("bfloat16", 2, reloads=True)
    check_adapters("float16", 1, reloads=False)
    with pytest.raises(ValueError, match=r"engine\.dtype=float32: on a GPU, vLLM adds adapters in bfloat16 or float16"):
        check_adapters("float32", 0, reloads=True)
    with pytest.raises(ValueError, match=r"engine\.sleep=2: this vLLM cannot load a model again"):
        check_adapters("bfloat16", 2, reloads=False)

"""Who computes one at a time."""

import threading

import torch
from torch import nn

from troupe.turns import SMALL, turn


def test_small_models_take_turns_and_large_ones_do_not() -> None:
    one, other = nn.Linear(10, 10), nn.Linear(20, 20)
    entered = threading.Event()

    def compute() -> None:
        with turn(other):
            entered.set()

    with turn(one):
        thread = threading.Thread(target=compute)
        thread.start()
        with turn(nn.Linear(SMALL, 1, device="meta")), turn(nn.Linear(SMALL, 1)):  # beside it, and in one thread
            assert not entered.wait(0.05)
    thread.join()
    assert entered.is_set()


def test_a_model_elsewhere_has_no_turn() -> None:
    with turn(nn.Linear(2, 2)), turn(nn.Linear(2, 2, device="meta")):
        assert torch.is_inference_mode_enabled() is False

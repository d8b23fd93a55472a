"""Who waits for updates."""

import threading

import pytest
from torch import nn

from troupe.kernels.contention import SMALL, await_updates, is_small, updating


def test_small_models_are_those_on_a_cpu() -> None:
    assert is_small(nn.Linear(SMALL - 1, 1)) and not is_small(nn.Linear(SMALL, 1))
    assert not is_small(nn.Linear(2, 2, device="meta"))


def test_an_engine_waits_for_the_last_of_several_updates() -> None:
    waited = threading.Event()

    def decode() -> None:
        await_updates(True)
        waited.set()

    thread = threading.Thread(target=decode)
    with pytest.raises(RuntimeError, match="out of memory"), updating(True):
        with updating(True):
            thread.start()
        assert not waited.wait(0.05)
        raise RuntimeError("out of memory")
    thread.join()
    assert waited.is_set()


def test_nobody_waits_for_the_update_of_a_large_model() -> None:
    with updating(False):
        await_updates(True)
    with updating(True):
        await_updates(False)
    await_updates(True)

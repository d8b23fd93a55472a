"""What Troupe adds to vLLM's worker, the process that holds the model.  vLLM imports this module there."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

from . import compat, heads
from .adapters import clear, install, stacked
from .digest import Digests, digests
from .held import held
from .orphans import end_with
from .transfer import register


class WorkerExtension:
    """Mixed into vLLM's worker; called by ``collective_rpc``."""

    model_runner: Any

    def troupe_digests(self) -> Digests:
        """The digest of every tensor that the model computes with, by its name in the checkpoint."""
        model = self.model_runner.get_model()
        return digests(held(model), self.model_runner.model_config.dtype)

    def troupe_adapt(self, slot: int, rank: int, given: bytes) -> None:
        """Make ``given`` the adapter number ``slot``."""
        install(self._adapters, slot, rank, given)

    def troupe_clear(self) -> None:
        """Leave no adapter in any slot."""
        clear(self._adapters)

    def troupe_adapter_digests(self, slot: int, rank: int) -> Digests:
        """The digest of every tensor that adapter ``slot`` computes with, by its name in a peft checkpoint."""
        return digests(stacked(self._adapters, slot, rank), self.model_runner.model_config.dtype)

    @property
    def _adapters(self) -> Any:
        return self.model_runner.lora_manager._adapter_manager


def _belong_to_the_learner() -> None:
    """A Ctrl-C in the terminal is for the learner (or a server's process), which still needs its engine to end in good
    order; and nothing may outlive one that was killed.
    """
    if (learner := multiprocessing.parent_process()) is not None:
        os.setpgid(0, 0)
        end_with(learner.pid or 0)


compat.in_worker()
heads.install()
register()
_belong_to_the_learner()

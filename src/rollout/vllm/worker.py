"""What Troupe adds to vLLM's worker, the process that holds the model.  vLLM imports this module there."""

from __future__ import annotations

from typing import Any

from .digest import Digests, digests, held
from .transfer import register

register()


class WorkerExtension:
    """Mixed into vLLM's worker; called by ``collective_rpc``."""

    model_runner: Any

    def troupe_digests(self) -> Digests:
        """The digest of every tensor that the model computes with, by its name in the checkpoint."""
        model = self.model_runner.get_model()
        return digests(held(model), self.model_runner.model_config.dtype)

"""An engine that is not believed, for the test of what happens then."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.rollout.engines.vllm.expected import ExpectedAnswers


class DoubtingEngine(VllmEngine):
    """Expects other answers to the probes than its weights give."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for name, policy in self.expected.policies.items():
            answers = ExpectedAnswers(partial(self._shifted, name), self.expected.settings.torch_dtype)
            self.expected.policies[name] = replace(policy, answers=answers)

    def _shifted(self, policy: str, dtype: torch.dtype) -> Iterator[Tensor]:
        return (each + 0.1 for each in self.expected._plain(policy, dtype))

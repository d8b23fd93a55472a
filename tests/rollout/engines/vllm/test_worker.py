"""What replaces vLLM's product of adapters on a CPU."""

from types import SimpleNamespace

import torch

from .conftest import NEEDS_VLLM

pytestmark = NEEDS_VLLM


def test_each_token_gets_what_its_own_adapter_adds() -> None:
    from troupe.rollout.engines.vllm.worker import add_by_adapter

    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 5, generator=generator), torch.randn(6, 7, generator=generator)
    down = [torch.randn(3, 1, 2, 5, generator=generator) for _ in range(2)]
    up = [torch.randn(3, 1, width, 2, generator=generator) for width in (4, 3)]
    slots = [2, -1, 0, 2, 0, -1]
    expected = y.clone()
    for token, slot in enumerate(slots):
        if slot >= 0:
            expected[token, :4] += 0.5 * up[0][slot, 0] @ down[0][slot, 0] @ x[token]
            expected[token, 4:] += 0.5 * up[1][slot, 0] @ down[1][slot, 0] @ x[token]
    add_by_adapter(SimpleNamespace(token_lora_indices=torch.tensor([*slots, 1])), y, x, down, up, 0.5, (4, 3))
    torch.testing.assert_close(y, expected)

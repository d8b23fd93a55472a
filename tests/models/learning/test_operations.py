"""Operations of passes, counted by hand."""

from collections.abc import Callable

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

from troupe.experience import Sample
from troupe.models.learning import learner
from troupe.models.learning.packing import pack, rows_of
from troupe.models.learning.update_stats import Operations, peak

from ..conftest import Groups, Tiny, full_policy, learn

PROMPT = (5, 6, 7, 8, 9)
BATCH = [Sample("p", PROMPT, (10, 11, 12), (-1.0,) * 3, 1.0, 1.0), Sample("p", PROMPT, (13, 14), (-1.0,) * 2, 1.0, 1.0)]
# Each layer: queries and output 16 x 16, keys and values 16 x 8, and three matrices of 16 x 48.
LAYERS = 2 * (2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 48)
# 4 tokens of prompt, which 3 + 2 see whole: a completion begins with the prompt's last token, and its own is no input.
TOKENS, SCORED, PAIRS = 4 + 3 + 2, 3 + 2, (4 * 5 // 2 + 4 * 5) + 3 * 4 // 2 + 2 * 3 // 2


@pytest.mark.parametrize(("rank", "learning"), [(0, False), (0, True), (4, False), (4, True)])
def test_operations_are_those_counted_by_hand(tiny: Tiny, rank: int, learning: bool) -> None:
    model = tiny()
    adapters = [torch.nn.Parameter(torch.zeros(rank, 16))] if rank else []
    operations = Operations.of(model, adapters or list(model.parameters()), adapters)
    assert operations is not None
    operations.add(pack(rows_of(BATCH)), learning=learning)
    head, attention = 16 * len(model.get_input_embeddings().weight), 4 * 2 * 16 * PAIRS
    forward = 2 * LAYERS * TOKENS + 2 * head * SCORED
    expected = {
        (0, False): forward + attention,
        (0, True): 3 * forward + 3 * attention,
        (4, False): forward + attention + 2 * 4 * 16 * TOKENS,
        (4, True): 2 * forward + 3 * attention + 6 * 4 * 16 * TOKENS,
    }
    assert operations.done == expected[rank, learning]


def test_a_mixture_of_experts_is_not_counted() -> None:
    sizes = dict(vocab_size=24, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    model = MixtralForCausalLM(MixtralConfig(**sizes, num_key_value_heads=1, num_local_experts=2))
    assert Operations.of(model, list(model.parameters()), []) is None


async def test_an_update_tells_its_share_of_a_known_peak(
    monkeypatch: pytest.MonkeyPatch, tiny: Tiny, groups: Callable[..., Groups]
) -> None:
    assert peak(torch.device("cpu")) is None and "mfu" not in await learn(full_policy(tiny()), groups())
    monkeypatch.setattr(learner, "peak", lambda device: 1e9)
    ours = full_policy(tiny())
    one = await learn(ours, groups())
    operations = Operations.of(tiny(), list(tiny().parameters()), [])
    assert operations is not None
    [step] = ours.learner._mini_batches(groups())
    for batch, _ in ours.learner._micro_batches(step):
        operations.add(batch, learning=True)
    assert one["mfu"] * one["update_s"] * 1e9 >= operations.done > 0  # passes that only measure count, too
    assert one["mfu"] < 1.5 * operations.done / one["update_s"] / 1e9

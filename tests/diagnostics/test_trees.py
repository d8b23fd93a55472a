"""What is measured of the trees that are kept, with a policy that learns."""

from functools import partial
from typing import Any

import lightning as L
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.objectives import ClippedObjective
from troupe.diagnostics.settings import TreeSettings
from troupe.diagnostics.trees import TreeKeeper
from troupe.experience import Episode, Task
from troupe.models.bases.tiny import build_model
from troupe.models.learning.policy import PolicyModule
from troupe.models.learning.train_config import PolicyTrainConfig
from troupe.models.pools.pool import Pool
from troupe.models.pools.team import Team

from .conftest import candidate, node

TEMPERATURES = {"tool": 0.5, "plan": 2.0}


async def test_the_scores_of_a_message_are_at_the_temperature_of_its_agent(words: PreTrainedTokenizerFast) -> None:
    """Of a policy that two agents share, each with its own."""
    model = build_model(words, hidden=16, layers=1, heads=2, seed=0)
    config = PolicyTrainConfig(
        objective=ClippedObjective(),
        optimizer=partial(torch.optim.SGD, lr=0.0),
        scheduler=partial(torch.optim.lr_scheduler.ConstantLR, factor=1.0, total_iters=0),
        temperatures=TEMPERATURES,
    )
    policies = Pool(PolicyModule(model, {"p": config}), L.Fabric(accelerator="cpu", devices=1), seed=0).policies
    team: Any = Team(policies, {}, {}, {}, {})
    nodes = [node(agent, turn, candidate(tokens=3), candidate(tokens=2)) for turn, agent in enumerate(TEMPERATURES)]
    episode = Episode(Task("t", "train", {}), nodes, [])
    AtGrpo()([episode])

    (tree,) = await TreeKeeper(TreeSettings(), team, None, beside=True).choose([episode], [], AtGrpo(), {}, due=True)  # type: ignore[arg-type]
    for each, message in episode.candidates():
        ids = [*each.prompt_ids, *message.completion.token_ids]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, len(each.prompt_ids) - 1 : -1]
        logprobs = (logits / TEMPERATURES[each.agent]).log_softmax(dim=-1)
        expected = [row[token].item() for row, token in zip(logprobs, message.completion.token_ids, strict=True)]
        assert tree.before[message] == pytest.approx(expected, abs=1e-5)

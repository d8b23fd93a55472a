"""A critic against plain regression, its state, and the critics of a run on episodes."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from transformers import Qwen3ForCausalLM

from troupe.algorithms.credit.iac import Iac
from troupe.algorithms.credit.maac import Maac
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task
from troupe.models.learning.critic import Critic, CriticModule, ValueSample
from troupe.models.learning.optimizer_steps import NonFiniteError
from troupe.models.learning.ranks import Ranks
from troupe.models.learning.settings import CriticSettings
from troupe.models.pools.checkpoint import CheckpointError, read_state, restore, write_checkpoint
from troupe.models.pools.critics import Critics

from ..conftest import PRECISION, SGD, Tiny, equal

ADAMW = partial(torch.optim.AdamW, lr=1e-2)


def make(model: Qwen3ForCausalLM, *, name: str = "team", optimizer: Any = SGD, **settings: Any) -> Critic:
    """A critic whose head is not 0, so that its backbone has gradients from the first step on."""
    module = CriticModule(model)
    with torch.no_grad():
        module.head.weight += torch.linspace(-1, 1, 16)
    fabric = L.Fabric(accelerator="cpu", devices=1, precision=PRECISION[model.dtype])
    limits = CriticSettings(**({"max_tokens": 40, "clip_norm": 1e9} | settings))
    return Critic(name, module, optimizer, limits, fabric, seed=3)


def samples(count: int = 6, seed: int = 0) -> list[ValueSample]:
    rng = Random(seed)
    lengths = [rng.randint(1, 12) for _ in range(count)]
    return [
        ValueSample(tuple(rng.randrange(1, 24) for _ in range(length)), rng.uniform(-1, 2), rng.randint(1, 3))
        for length in lengths
    ]


def plain_value(model: Qwen3ForCausalLM, head: torch.nn.Linear, token_ids: Sequence[int]) -> torch.Tensor:
    """One sequence, no padding: the head on the last hidden state."""
    hidden = model(input_ids=torch.tensor([token_ids]), output_hidden_states=True).hidden_states[-1]
    value: torch.Tensor = head(hidden[0, -1])[0]
    return value


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("max_tokens", [12, 1000])
def test_a_step_is_plain_regression(tiny: Tiny, dtype: torch.dtype, max_tokens: int) -> None:
    critic, data = make(tiny(dtype), max_tokens=max_tokens), samples()
    model, head = tiny(dtype), copy.deepcopy(critic.plain.head)
    values = [plain_value(model, head, sample.token_ids) for sample in data]
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}[dtype]
    inputs = [sample.token_ids for sample in data]
    assert critic.evaluate(inputs) == pytest.approx([value.item() for value in values], abs=tolerance)

    # Each return is a message of its own: a mean over messages of half the squared error.
    total = sum(sample.count for sample in data)
    loss = sum(s.count * (v - s.target) ** 2 for s, v in zip(data, values, strict=True)) / total / 2
    optimizer = SGD([*model.model.parameters(), *head.parameters()])
    loss.backward()  # type: ignore[union-attr]
    optimizer.step()
    critic.update(data)
    assert critic.version == 1
    expected = [*model.model.parameters(), *head.parameters()]
    for found, parameter in zip(critic.plain.parameters(), expected, strict=True):
        assert torch.allclose(found, parameter, atol=tolerance)
    assert not torch.equal(head.weight, make(tiny(dtype)).plain.head.weight)


def test_a_new_critic_says_0(tiny: Tiny) -> None:
    module = CriticModule(tiny())
    assert module([(5, 6, 7), (8,)]).tolist() == [0.0, 0.0]


def test_a_loaded_state_goes_on_bit_for_bit(tiny: Tiny) -> None:
    settings: dict[str, Any] = {"optimizer": ADAMW, "mini_batches": 2, "epochs": 2}
    ours, other = make(tiny(), **settings), make(tiny(seed=3), **settings)
    assert ours.update(samples(seed=1))["optimizer_steps"] == 4
    other.load_state_dict(copy.deepcopy(ours.state_dict()))
    for each in (ours, other):
        each.update(samples(seed=2))
    assert equal(ours.state_dict(), other.state_dict())
    assert ours.evaluate([(5, 6)]) == other.evaluate([(5, 6)])
    with pytest.raises(ValueError, match=r"head\.weight"):
        other.load_state_dict({**ours.state_dict(), "model": {}})


def test_a_target_that_is_not_finite_is_no_step(tiny: Tiny) -> None:
    critic = make(tiny())
    before = copy.deepcopy(critic.state_dict())
    with pytest.raises(NonFiniteError, match="critic 'team': the loss is nan in the update of version 0"):
        critic.update([ValueSample((5,), float("nan"), 1)])
    assert equal(before, critic.state_dict())


def test_a_checkpoint_holds_the_critics(tiny: Tiny, tmp_path: Path) -> None:
    ours, again = make(tiny(), optimizer=ADAMW), make(tiny(seed=1), optimizer=ADAMW)
    ours.update(samples())
    write_checkpoint(tmp_path / "c", {}, {}, {"iteration": 1}, critics={"team": ours})
    assert read_state(tmp_path / "c")["iteration"] == 1  # its checksums, too
    restore(tmp_path / "c", {}, {"team": again})
    assert equal(ours.state_dict(), again.state_dict())
    with pytest.raises(CheckpointError, match=r"critics/tool/training\.pt does not fit critic 'tool'"):
        restore(tmp_path / "c", {}, {"tool": again})


# ---- episodes -------------------------------------------------------------------------------------------------------


def played(prompts: Sequence[tuple[int, ...]], rewards: Sequence[float], policy: str = "p") -> Episode:
    """A chain of one agent."""
    nodes = []
    for turn, (prompt, reward) in enumerate(zip(prompts, rewards, strict=True)):
        completion = Completion((7,), (-1.0,), "", "stop", policy, 0)
        nodes.append(Node("t", "solo", turn, prompt, [Candidate(completion, 0.0, reward, reward)]))
    last = len(nodes) - 1
    edges = [JointAction({"solo": (i, 0)}, child=i + 1) for i in range(last)]
    edges.append(JointAction({"solo": (last, 0)}, outcome=Outcome(True, last + 1, sum(rewards), sum(rewards))))
    return Episode(Task("t", "train", {}), nodes, edges)


async def test_values_then_credit_then_regression(tiny: Tiny) -> None:
    rule, critic = Maac(normalise=False), make(tiny(), optimizer=ADAMW, epochs=5)
    critics = Critics(rule, {"team": critic})
    episodes = [played([(5, 6), (8,)], [0, 1]), played([(5, 6), (9, 9)], [0, 0])]
    losses = []
    for _ in range(6):
        await critics.evaluate(episodes, Ranks())
        first, second = (node.value for node in episodes[0].nodes)
        assert [first, second] == critic.evaluate([(5, 6), (8,)])
        rule(episodes)
        losses.append((await critics.update(episodes))["team"])
    # Returns 1, 1, 0, 0: of the first prompt 1/2 on average, so that 1/4 * 2 / 4 of the variance of 1/4 stays.
    assert losses[-1]["value_loss"] < losses[0]["value_loss"] and losses[-1]["return"] == 0.5
    assert 0.3 < losses[-1]["explained_variance"] <= 0.5
    errors = [n.return_to_go - n.value for e in episodes for n in e.nodes]  # type: ignore[operator]
    assert losses[-1]["value_loss"] == pytest.approx(sum(e * e for e in errors) / 4)


async def test_of_a_longer_input_the_last_tokens_are_read(tiny: Tiny) -> None:
    rule, critic = Maac(), make(tiny())
    critic.context = 2
    critics, episodes = Critics(rule, {"team": critic}), [played([(5, 6, 7), (8,)], [0, 1])]
    await critics.evaluate(episodes, Ranks())
    assert episodes[0].nodes[0].value == pytest.approx(critic.evaluate([(6, 7)])[0], abs=1e-5)
    rule(episodes)
    assert (await critics.update(episodes))["team"]["cut_inputs"] == 0.5


async def test_messages_without_a_critic_have_the_value_0_and_teach_none(tiny: Tiny) -> None:
    rule = Iac(normalise=False)
    critics = Critics(rule, {"p": make(tiny(), name="p")})
    episodes = [played([(5, 6)], [1], policy="frozen")]
    await critics.evaluate(episodes, Ranks())
    assert episodes[0].nodes[0].value == 0.0
    rule(episodes)
    assert await critics.update(episodes) == {} and critics.by_name["p"].version == 0


async def test_a_run_without_critics_has_no_values() -> None:
    episode = played([(5,)], [1])
    await Critics().evaluate([episode], Ranks())
    assert episode.nodes[0].value is None and await Critics().update([episode]) == {}


def test_two_processes_share_a_mini_batch(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their gradients add up to the one of a single process; one without a row has a gradient of 0."""
    gradients: list[list[torch.Tensor]] = []
    take: Callable[[Critic], float] = Critic._clip

    def record(critic: Critic) -> float:
        critic.ranks = Ranks()
        gradients.append([p.grad.clone() for p in critic.plain.parameters() if p.grad is not None])
        return take(critic)

    monkeypatch.setattr(Critic, "_clip", record)
    for count in (1, 5):
        gradients.clear()
        for rank, world in ((0, 1), (0, 2), (1, 2)):
            critic = make(tiny(torch.float64))
            critic.ranks = SimpleNamespace(rank=rank, world=world, total=Ranks().total)  # type: ignore[assignment]
            critic.update(samples(count))
        for whole, first, second in zip(*gradients, strict=True):
            assert torch.allclose(whole, first + second, atol=1e-12)

"""Diagnostics of messages, and of the turns that prompts lie in, worked out by hand."""

from dataclasses import replace

import pytest

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.diagnostics.messages import message_metrics
from troupe.experience import Episode, JointAction, Node, Outcome, Task

from .conftest import candidate, node

TASK = Task("t", "train", {})


def group(of: Node) -> tuple[str, int]:
    return of.agent, of.turn


def test_by_hand() -> None:
    first = node(
        "tool",
        0,
        candidate(1.0, tokens=2, nats=0.5, advantage=1.0),
        candidate(0.0, tokens=4, nats=0.25, advantage=-1.0),
    )
    again = node(
        "tool", 1, candidate(1.0, tokens=6, nats=1.0, finish="length"), candidate(1.0, info={"malformed": 1.0})
    )
    found = message_metrics([Episode(TASK, [first, again], [])], group)
    turn0 = {key.rpartition("/")[2]: value for key, value in found.items() if key.startswith("tool/turn0/")}
    assert turn0 == pytest.approx(
        {
            **{"prompts": 1, "messages": 2, "entropy_nats": (2 * 0.5 + 4 * 0.25) / 6},
            **{
                "tokens_p50": 3,
                "tokens_p90": 3.8,
                "tokens_max": 4,
                "truncated": 0,
                "reward_mean": 0.5,
                "reward_std": 0.5,
            },
            **{"advantage_p10": -0.8, "advantage_p50": 0, "advantage_p90": 0.8, "zero_variance": 0, "spread": 1},
        }
    )
    assert (found["tool/turn1/zero_variance"], found["tool/turn1/spread"], found["tool/turn1/truncated"]) == (1, 0, 0.5)
    assert found["tool/turn1/malformed"] == 1, "of those that say so"
    whole = {
        name: found[f"tool/{name}"] for name in ("messages", "zero_variance", "spread", "truncated", "reward_mean")
    }
    assert whole == {"messages": 4, "zero_variance": 0.5, "spread": 0.5, "truncated": 0.25, "reward_mean": 0.75}


def test_spread_counts_pairs() -> None:
    of = node("tool", 0, *(candidate(reward) for reward in (0.0, 0.0, 1.0, 2.0)))
    assert message_metrics([Episode(TASK, [of], [])], group)["tool/spread"] == 5 / 6


def test_the_variance_is_that_of_the_rules_groups() -> None:
    """Of equal advantages, whatever they are; groups of one are compared with nothing."""
    two = [
        Episode(TASK, [node("tool", turn, candidate(1.0, advantage=a))], [])
        for turn, a in ((0, 1.0), (0, 1.0), (1, 0.0))
    ]
    found = message_metrics(two, group)
    assert found["tool/zero_variance"] == found["tool/turn0/zero_variance"] == 1
    assert "tool/turn1/zero_variance" not in found and "tool/spread" not in found


def test_a_prompt_of_a_tree_counts_with_its_probability() -> None:
    root, *later = (node("tool", turn, candidate(), candidate()) for turn in (0, 1, 1))
    edges = [JointAction({"tool": (0, c)}, child=1 + c) for c in range(2)]
    edges += [JointAction({"tool": (n, c)}, outcome=Outcome(False, 2, 0.0)) for n in (1, 2) for c in range(2)]
    found = message_metrics([Episode(TASK, [root, *later], edges)], group)
    assert (found["tool/turn0/prompts"], found["tool/turn1/prompts"], found["tool/turn1/messages"]) == (1, 1, 4)


def test_texts_without_tokens_have_no_entropy_and_no_length() -> None:
    silent = candidate(1.0)
    silent.completion = replace(silent.completion, token_ids=(), logprobs=())
    found = message_metrics([Episode(TASK, [node("tool", 0, silent)], [])], group)
    assert "tool/reward_mean" in found and not {"tool/entropy_nats", "tool/tokens_p50"} & found.keys()


def test_zero_variance_is_what_the_update_calls_no_live_group() -> None:
    """Advantages as a credit rule sets them: the groups of AT-GRPO are nodes."""
    same = Episode(
        TASK, [node("tool", 0, candidate(0.3), candidate(0.3)), node("plan", 0, candidate(0.0), candidate(1.0))], []
    )
    rule = AtGrpo()
    rule([same])
    found = message_metrics([same], rule.key)
    assert (found["tool/zero_variance"], found["plan/zero_variance"]) == (1, 0)

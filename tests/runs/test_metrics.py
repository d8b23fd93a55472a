"""Metrics of rollouts and updates, by hand."""

from dataclasses import replace

import pytest

from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task
from troupe.runs.metrics import prefixed, rollout_metrics, update_metrics


def spoken(tokens: int, cut: bool = False) -> Completion:
    return Completion((5,) * tokens, (-1.0,) * tokens, "", "length" if cut else "stop", "p", 0)


def candidate(tokens: int, team: float, local: float, blocked: float, cut: bool = False) -> Candidate:
    return Candidate(spoken(tokens, cut), local, team, team + local, info={"blocked": blocked})


def episode(success: bool, turns: int, *nodes: Node) -> Episode:
    edge = JointAction({}, outcome=Outcome(success, turns, float(success)))
    return Episode(Task("t", "train", {}), list(nodes), [edge], env_steps=2 * len(nodes))


def test_a_rollout_by_hand() -> None:
    tool = Node("t", "tool", 0, (1, 2, 3), [candidate(4, 1, 0.1, 0), candidate(2, 0, 0.05, 1)])
    plan = Node("t", "plan", 0, (1, 2, 3, 4), [candidate(1, 0, 0, 1), candidate(3, 1, 0.1, 0, cut=True)])
    later = Node("t", "tool", 1, (1,), [candidate(5, 0, 0.0, 0), candidate(5, 0, 0.0, 1)])
    trees = [episode(True, 1, tool, plan), episode(False, 4, later)]
    for tree in trees:
        tree.best_of_k = True
    assert rollout_metrics(trees, seconds=4.0) == {
        "rollout/best_of_k_success": 0.5,
        "rollout/turns": 2.5,
        "rollout/tasks": 1,
        "rollout/lost_episodes": 0,
        "rollout/completions": 6,
        "rollout/tokens": 20,
        "rollout/prompt_tokens": 8,
        "rollout/env_steps": 6,
        "rollout/tokens_per_s": 5.0,
        "rollout/truncated_ratio": pytest.approx(1 / 6),
        "rollout/plan/reward": pytest.approx(0.55),
        "rollout/plan/outcome_reward": 0.5,
        "rollout/plan/local_reward": pytest.approx(0.05),
        "rollout/plan/cut_prompts": 0.0,
        "rollout/plan/retokenised_prompts": 0.0,
        "rollout/plan/tokens_per_message": 2.0,
        "rollout/plan/blocked": 0.5,
        "rollout/tool/reward": pytest.approx((1.1 + 0.05) / 4),
        "rollout/tool/outcome_reward": 0.25,
        "rollout/tool/local_reward": pytest.approx(0.15 / 4),
        "rollout/tool/cut_prompts": 0.0,
        "rollout/tool/retokenised_prompts": 0.0,
        "rollout/tool/tokens_per_message": 4.0,
        "rollout/tool/blocked": 0.5,
    }


def test_several_worlds_are_counted_apart_and_may_tell_different_things() -> None:
    one, other = candidate(1, 0, 0, 1), candidate(1, 0, 0, 0)
    other.info = {"wrong": 1.0}
    episodes = [episode(True, 1, Node("t", "tool", 0, (1,), [found])) for found in (one, other)]
    for name, found in zip(("a", "b"), episodes, strict=True):
        found.task = replace(found.task, task_id=name, world=name)
    row = rollout_metrics(episodes, 1.0)
    assert (row["rollout/tasks_a"], row["rollout/tasks_b"], row["rollout/tasks"]) == (1, 1, 2)
    assert (row["rollout/tool/blocked"], row["rollout/tool/wrong"]) == (1.0, 1.0)


def test_chains_have_a_success_of_their_own() -> None:
    row = rollout_metrics(
        [episode(i < 3, 1, Node("t", "tool", 0, (1,), [candidate(2, 1, 0, 0)])) for i in range(4)], 1.0
    )
    assert row["rollout/success"] == 0.75 and "rollout/best_of_k_success" not in row


def test_an_early_end_of_a_full_tree_counts_for_what_might_have_followed() -> None:
    # Two joint actions: one succeeds at once, the other leads to two failures: success 1/2, turns 1/2 + 2/2.
    tree = episode(True, 1, Node("t", "tool", 0, (1,), [candidate(2, 1, 0, 0)]))
    tree.nodes.append(Node("t", "tool", 1, (1,), [candidate(2, 1, 0, 0)]))
    tree.edges = [
        JointAction({"tool": (0, 0)}, outcome=Outcome(True, 1, 1.0)),
        JointAction({"tool": (0, 1)}, child=1),
        *(JointAction({"tool": (1, i)}, outcome=Outcome(False, 2, 0.0)) for i in range(2)),
    ]
    row = rollout_metrics([tree], 1.0)
    assert (row["rollout/success"], row["rollout/turns"]) == (0.5, 1.5)


def test_what_was_asked_only_to_judge_counts_as_generated() -> None:
    node = Node("t", "tool", 0, (1, 2, 3), [candidate(4, 1, 0, 0), candidate(2, 0, 0, 1)])
    plain, looking = episode(True, 1, node), episode(True, 1, node)
    looking.auxiliary = [(10, spoken(3)), (20, spoken(1, cut=True))]
    before, after = (rollout_metrics([e], seconds=1.0) for e in (plain, looking))
    changed = {key: after[key] - before[key] for key in before if after[key] != before[key]}
    assert changed == {
        "rollout/completions": 2,
        "rollout/tokens": 4,
        "rollout/prompt_tokens": 30,
        "rollout/tokens_per_s": 4.0,
    }


def test_the_tokens_of_remote_policies_are_unknown_here() -> None:
    remote = Candidate(Completion((), (), "R", "stop", "p", 0), 0.0, 1.0, 1.0)
    nodes = [Node("t", "tool", 0, (9,) * 50, [remote] * 2), Node("t", "plan", 0, (1, 2), [candidate(4, 1, 0, 0)])]
    tree = episode(True, 1, *nodes)
    tree.auxiliary = [(60, remote.completion), (3, spoken(1))]
    row = rollout_metrics([tree], 1.0)
    assert (row["rollout/completions"], row["rollout/tokens"], row["rollout/prompt_tokens"]) == (5, 5, 5)
    assert row["rollout/tool/reward"] == 1.0 and "rollout/tool/tokens_per_message" not in row


def test_messages_that_no_model_generated_are_no_completions() -> None:
    """Else a role that is trained beside a silent partner would have half of a team's budget."""
    silence = Completion((), (), "", "stop", "tool", 0, scripted=True)
    nodes = [
        Node("t", "tool", 0, (9,), [Candidate(silence, 0.0, 1.0, 1.0)] * 2),
        Node("t", "plan", 0, (1, 2), [candidate(4, 1, 0, 0)] * 3),
    ]
    tree = episode(True, 1, *nodes)
    tree.auxiliary = [(60, silence), (3, spoken(1))]
    row = rollout_metrics([tree], 1.0)
    assert tree.generated == row["rollout/completions"] == 4
    assert row["rollout/tool/reward"] == 1.0


def test_metrics_of_updates_are_named_after_their_policies_and_critics() -> None:
    critics = {"tool": {"value_loss": 0.1, "faults/oom_splits": 1}}
    updates = {
        "tool": {"loss": 0.5, "faults/oom_splits": 2, "mismatch/tool/turn0/k3_nats": 0.1},
        "plan": {"loss": 0.25},
    }
    assert update_metrics(updates, critics) == {
        "critic/tool/value_loss": 0.1,
        "faults/oom_splits": 3,
        "train/tool/loss": 0.5,
        "mismatch/tool/turn0/k3_nats": 0.1,
        "train/plan/loss": 0.25,
    }
    assert prefixed("eval", {"success": 1, "turns": 2.0}) == {"eval/success": 1, "eval/turns": 2.0}

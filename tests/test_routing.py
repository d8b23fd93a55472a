"""Which candidates go to which policy, with which weight, and teams that do not fit."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Sample, Task
from troupe.routing import Router, TeamMapError

AGENTS = ("tool", "plan")


def node(task: str, agent: str, turn: int, k: int = 2) -> Node:
    """Token ids tell where a candidate comes from: (task, agent, turn, candidate)."""
    origin = (ord(task), AGENTS.index(agent), turn)
    candidates = [
        Candidate(
            Completion((*origin, c), (-0.25 * c, -1.0, -2.0, -3.0), "", "stop", agent, 0),
            local=0.0,
            team=1.0,
            reward=1.0,
            advantage=c + 0.5,
        )
        for c in range(k)
    ]
    return Node(task, agent, turn, (7, *origin), candidates)


def by_node(node: Node) -> Hashable:
    return (node.task_id, node.agent, node.turn)


def played() -> list[Episode]:
    """Task t lasts two turns, task u one; the planner of u has four candidates."""
    nodes = {
        "t": [node("t", agent, turn) for turn in (0, 1) for agent in AGENTS],
        "u": [node("u", "tool", 0), node("u", "plan", 0, k=4)],
    }
    return [Episode(Task(task, "train", {}), mine, []) for task, mine in nodes.items()]


def origins(groups: Sequence[Sequence[Sample]]) -> list[list[tuple[int, ...]]]:
    return [[sample.token_ids for sample in group] for group in groups]


def test_a_sample_has_the_version_of_its_first_token() -> None:
    episodes = played()
    first, second = episodes[0].nodes[0].candidates
    first.completion = replace(first.completion, version=3, versions=(3, 3, 4, 5))
    second.completion = replace(second.completion, version=4)
    ((one, two), *_) = Router({"tool": "p", "plan": "p"}, AGENTS, ("p",)).route(episodes, by_node)["p"]
    assert [(each.version, each.mixed_versions) for each in (one, two)] == [(3, True), (4, False)]


def test_each_agent_feeds_its_own_policy() -> None:
    routed = Router({"tool": "scout", "plan": "worker"}, AGENTS, ("scout", "worker")).route(played(), by_node)
    t, u = ord("t"), ord("u")
    assert origins(routed["scout"]) == [
        [(t, 0, 0, 0), (t, 0, 0, 1)],
        [(t, 0, 1, 0), (t, 0, 1, 1)],
        [(u, 0, 0, 0), (u, 0, 0, 1)],
    ]
    assert origins(routed["worker"]) == [
        [(t, 1, 0, 0), (t, 1, 0, 1)],
        [(t, 1, 1, 0), (t, 1, 1, 1)],
        [(u, 1, 0, c) for c in range(4)],
    ]


def test_a_sample_is_its_candidate() -> None:
    routed = Router({"tool": "scout", "plan": "worker"}, AGENTS, ("scout", "worker")).route(played(), by_node)
    # Three groups of the policy; two candidates in this one.
    assert routed["scout"][1][1] == Sample(
        policy="scout",
        prompt_ids=(7, ord("t"), 0, 1),
        token_ids=(ord("t"), 0, 1, 1),
        behaviour_logprobs=(-0.25, -1.0, -2.0, -3.0),
        advantage=1.5,
        weight=1 / 6,
        share=1 / 6,
        agent="tool",
        turn=1,
        version=0,
    )
    assert {sample.weight for sample in routed["worker"][2]} == {1 / 12}


def test_a_shared_policy_gets_everybodys() -> None:
    routed = Router({"tool": "shared", "plan": "shared"}, AGENTS, ("shared",)).route(played(), by_node)
    assert list(routed) == ["shared"]
    apart = Router({"tool": "scout", "plan": "worker"}, AGENTS, ("scout", "worker")).route(played(), by_node)
    assert sorted(origins(routed["shared"])) == sorted(origins(apart["scout"]) + origins(apart["worker"]))


@pytest.mark.parametrize(
    "team", [{"tool": "a", "plan": "a"}, {"tool": "a", "plan": "b"}], ids=["shared", "specialised"]
)
def test_the_weights_of_a_policy_sum_to_1(team: Mapping[str, str]) -> None:
    routed = Router(team, AGENTS, sorted(set(team.values()))).route(played(), by_node)
    for groups in routed.values():
        assert sum(sample.weight for group in groups for sample in group) == pytest.approx(1, abs=1e-12)
        for group in groups:
            assert sum(sample.weight for sample in group) == pytest.approx(1 / len(groups), abs=1e-12)


def test_a_policy_whose_agents_were_silent_gets_nothing() -> None:
    episode = Episode(Task("t", "train", {}), [node("t", "tool", 0)], [])
    routed = Router({"tool": "scout", "plan": "worker"}, AGENTS, ("scout", "worker")).route([episode], by_node)
    assert routed["worker"] == []


def test_credit_must_come_first() -> None:
    episodes = played()
    episodes[1].nodes[0].candidates[1].advantage = None
    with pytest.raises(ValueError, match="task u has no advantage"):
        Router({"tool": "a", "plan": "a"}, AGENTS, ("a",)).route(episodes, by_node)


@pytest.mark.parametrize(
    ("team", "policies", "message"),
    [
        ({"tool": "a"}, ["a"], "agent 'plan' has no policy: team has tool"),
        ({}, ["a"], "agent 'tool' has no policy: team has no agent"),
        ({"tool": "a", "plan": "a", "cook": "a"}, ["a"], "agent 'cook', but the world's agents are tool, plan"),
        ({"tool": "a", "plan": "b"}, ["a"], "team maps agent 'plan' to policy 'b', but policies has a"),
        ({"tool": "a", "plan": "a"}, ["a", "b"], "policy 'b' is used by no agent"),
    ],
)
def test_teams_that_do_not_fit(team: Mapping[str, str], policies: Sequence[str], message: str) -> None:
    with pytest.raises(TeamMapError, match=message):
        Router(team, AGENTS, policies)


def test_a_group_may_hold_nodes_of_several_turns_and_agents() -> None:
    routed = Router({"tool": "a", "plan": "a"}, AGENTS, ("a",)).route(played(), lambda node: node.task_id)
    assert [len(group) for group in routed["a"]] == [8, 6]
    # Two groups of the policy, with eight and six candidates.
    assert {sample.weight for sample in routed["a"][0]} == {1 / 16}
    assert {sample.weight for sample in routed["a"][1]} == {1 / 12}


def test_what_has_no_tokens_is_never_learnt_from() -> None:
    episodes = played()
    said = Candidate(Completion((), (), "R", "stop", "far", 0), 0.0, 1.0, 1.0, advantage=0.5)
    episodes[0].nodes[0].candidates[1] = said
    team = {"tool": "far", "plan": "worker"}
    assert set(Router(team, AGENTS, ("far", "worker"), ("far",)).route(episodes, by_node)) == {"worker"}
    with pytest.raises(ValueError, match="agent 'tool', task t: a completion of policy 'far' has text but no tokens"):
        Router(team, AGENTS, ("far", "worker")).route(episodes, by_node)


# ---- weight=episode --------------------------------------------------------------------------------------------------


def chained(task: str, agents: Sequence[str], sample: int = 0) -> Episode:
    """An episode whose ``agents`` spoke one after the other, one candidate each."""
    nodes = [node(task, agent, turn, k=1) for turn, agent in enumerate(agents)]
    edges = [JointAction({agent: (i, 0)}, child=i + 1) for i, agent in enumerate(agents[:-1])]
    edges.append(JointAction({agents[-1]: (len(agents) - 1, 0)}, outcome=Outcome(True, 1, 1.0)))
    return Episode(Task(task, "train", {}), nodes, edges, sample=sample)


def by_task(node: Node) -> Hashable:
    return node.task_id


def weights(routed: Mapping[str, Sequence[Sequence[Sample]]]) -> dict[str, list[list[float]]]:
    return {policy: [[sample.weight for sample in group] for group in groups] for policy, groups in routed.items()}


def test_by_episode_a_message_weighs_the_same_in_long_and_short_episodes() -> None:
    """Task t: episodes of 2 and 4 messages; task u: one of its two episodes was lost, and the planner is silent."""
    episodes = [chained("t", AGENTS), chained("t", AGENTS * 2, 1), chained("u", ["tool"])]
    routed = Router({"tool": "a", "plan": "b"}, AGENTS, ("a", "b")).route(episodes, by_task, "episode")
    # 1 / (2 tasks * 2 episodes) and 1 / (2 tasks * 1 episode), for the planner too: it could have spoken.
    assert weights(routed) == {"a": [[1 / 4] * 3, [1 / 2]], "b": [[1 / 4] * 3]}
    # Of a policy's groups each has an equal share, whatever its weights.
    assert [[s.share for s in group] for group in routed["a"]] == [[1 / 6] * 3, [1 / 2]]


def test_by_episode_a_frozen_policy_changes_nothing_for_the_others() -> None:
    episodes = [chained("t", AGENTS), chained("t", AGENTS * 2, 1)]
    team = {"tool": "a", "plan": "b"}
    learning = Router(team, AGENTS, ("a", "b")).route(episodes, by_task, "episode")
    assert Router(team, AGENTS, ("a", "b"), ("b",)).route(episodes, by_task, "episode") == {"a": learning["a"]}


def test_by_episode_a_node_of_a_full_tree_has_its_probability() -> None:
    """Three joint actions at the root: one ends, two lead to a node of three candidates each."""
    nodes = [node("t", "tool", 0, k=3), node("t", "tool", 1, k=3), node("t", "tool", 1, k=3)]
    end = Outcome(False, 1, 0.0)
    edges = [
        JointAction({"tool": (0, c)}, child, end if child is None else None) for c, child in enumerate([None, 1, 2])
    ]
    edges += [JointAction({"tool": (n, c)}, None, end) for n in (1, 2) for c in range(3)]
    episode = Episode(Task("t", "train", {}), nodes, edges)
    routed = Router({"tool": "a", "plan": "a"}, AGENTS, ("a",)).route([episode], lambda n: id(n), "episode")
    assert [set(group) for group in weights(routed)["a"]] == [{1 / 3}, {1 / 3 / 3}, {1 / 3 / 3}]


def test_by_episode_the_candidates_of_a_node_share_its_weight() -> None:
    """A tree that goes on from one candidate: each of its nodes is certain."""
    routed = Router({"tool": "a", "plan": "a"}, AGENTS, ("a",)).route(played(), by_node, "episode")
    # Two tasks of one episode each; nodes of two candidates, and one of four.
    assert [group[0] for group in weights(routed)["a"]] == [1 / 4] * 5 + [1 / 8]


@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=5))
def test_by_episode_a_policys_weights_are_its_messages_per_episode(lengths: list[list[int]]) -> None:
    episodes = [
        chained(chr(ord("a") + t), ["tool"] * length, i)
        for t, task in enumerate(lengths)
        for i, length in enumerate(task)
    ]
    (groups,) = Router({"tool": "a", "plan": "a"}, AGENTS, ("a",)).route(episodes, by_task, "episode").values()
    assert sum(s.weight for group in groups for s in group) == pytest.approx(fmean(map(fmean, lengths)))
    assert sum(s.share or 0 for group in groups for s in group) == pytest.approx(1)

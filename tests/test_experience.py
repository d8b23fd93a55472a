"""Trees of joint actions: the probability of nodes and leaves."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task

Tree = list["Tree | None"]
"""The joint actions of a node: what each leads to, a node or (None) an end."""

trees = st.recursive(
    st.lists(st.none(), min_size=1, max_size=3),
    lambda below: st.lists(st.none() | below, min_size=1, max_size=3),
    max_leaves=12,
)


def grown(tree: Tree) -> Episode:
    """Breadth first, two agents per node, as the joint sampler writes it."""
    episode = Episode(Task("t", "train", {}), [], [])
    said = Completion((1,), (-0.5,), "U", "stop", "p", 0)
    queue, free = [(tree, 0)], 2
    while queue:
        node, turn = queue.pop(0)
        first = len(episode.nodes)
        for agent in ("helper", "main"):
            candidates = [Candidate(said, 0, 0, 0) for _ in node]
            episode.nodes.append(Node("t", agent, turn, (turn,), candidates))
        for c, below in enumerate(node):
            child = None
            if below is not None:
                child, free = free, free + 2
                queue.append((below, turn + 1))
            end = Outcome(False, turn + 1, 0.0) if below is None else None
            episode.edges.append(JointAction({"helper": (first, c), "main": (first + 1, c)}, child, end))
    return episode


def test_probabilities_by_hand() -> None:
    """Three joint actions: an end, a node of two ends, a node whose one joint action leads to a node of one end."""
    episode = grown([None, [None, None], [[None]]])
    assert episode.reach == pytest.approx([1, 1, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3])
    assert [chance for chance, _ in episode.leaves] == pytest.approx([1 / 3, 1 / 6, 1 / 6, 1 / 3])


def test_where_one_joint_action_goes_on_every_node_is_certain() -> None:
    episode = grown([None, [None]])
    episode.edges[0] = JointAction(episode.edges[0].members)  # tried, and not followed
    assert episode.reach == [1, 1, 1, 1]


@given(trees)
def test_every_turn_is_reached_or_ended_before(tree: Tree) -> None:
    episode = grown(tree)
    assert fsum(chance for chance, _ in episode.leaves) == pytest.approx(1)
    for turn in {node.turn for node in episode.nodes}:
        reached = [
            r for r, node in zip(episode.reach, episode.nodes, strict=True) if (node.turn, node.agent) == (turn, "main")
        ]
        ended = [chance for chance, outcome in episode.leaves if outcome.turns <= turn]
        assert fsum([*reached, *ended]) == pytest.approx(1)


def test_what_a_policy_says_is_in_whole_characters() -> None:
    said = ("plain", "é 😀", "a\ud83d", "\ude00\ud83d", "\ud83d\ude00")
    texts = [Completion((), (), text, "stop", "p", 0).text for text in said]
    assert texts == ["plain", "é 😀", "a\ufffd", "\ufffd\ufffd", "😀"]


def test_a_completion_of_several_versions_begins_with_its_own() -> None:
    Completion((4, 5), (-0.5, -1.0), "", "stop", "p", 3, (3, 4))
    for versions in ((3,), (4, 4), (3, 4, 4)):
        with pytest.raises(ValueError, match=r"2 tokens, the first of version 3, but the versions \("):
            Completion((4, 5), (-0.5, -1.0), "", "stop", "p", 3, versions)

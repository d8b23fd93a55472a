"""Tree-GRPO by hand, and against the formula written plainly."""

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.credit.tree_grpo import TreeGrpo
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task

Tree = bool | list["Tree"]
"""An outcome, or the messages that were tried next."""
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]
SAID = Completion((1,), (-0.5,), "U", "stop", "p", 0)


def forest(trees: list[Tree], task: str = "t") -> Episode:
    """Nodes in the order of a walk that goes down first; every message earns 7 at once, which nobody may read."""
    episode = Episode(Task(task, "train", {}), [], [])

    def grow(children: list[Tree]) -> int:
        index = len(episode.nodes)
        episode.nodes.append(Node(task, "tool", 0, (index,), [Candidate(SAID, 3, 4, 7) for _ in children]))
        for c, child in enumerate(children):
            members = {"tool": (index, c)}
            if isinstance(child, list):
                episode.edges.append(JointAction(members, child=grow(child)))
            else:
                episode.edges.append(JointAction(members, outcome=Outcome(child, 1, 10.0 * child + len(episode.edges))))
        return index

    grow(trees)
    return episode


# Tree 0: a message, then two branches, of which one succeeds.  Tree 1: fails at once.
SMALL: list[Tree] = [[True, False], False]


def test_within_the_tree_and_over_the_task(advantages: Advantages) -> None:
    # Leaves 1, 0 | 0.  Tree 0: mean 1/2, std sqrt(1/2), so A = +-0.7071.  Task: mean 1/3, std sqrt(1/3), so 1.1547 and
    # -0.5774.  The first message of tree 0: (1/2 - 1/3) / sqrt(1/3) = 0.2887, and nothing within its tree.
    episode = forest(SMALL)
    TreeGrpo(std_floor=0.0)([episode])
    expected = [0.288675, -0.577350, 0.707107 + 1.154701, -0.707107 - 0.577350]
    assert advantages([episode]) == [pytest.approx(expected, abs=1e-6)]


def test_without_the_std(advantages: Advantages) -> None:
    episode = forest(SMALL)
    TreeGrpo(normalise=False)([episode])
    assert advantages([episode]) == [pytest.approx([1 / 6, -1 / 3, 1 / 2 + 2 / 3, -1 / 2 - 1 / 3])]


def test_the_teams_return_in_place_of_success(advantages: Advantages) -> None:
    # Edges come children first: the leaves of tree 0 have 10 and 1, the leaf of tree 1 has 3.
    episode = forest(SMALL)
    TreeGrpo(value="team_return", normalise=False)([episode])
    mean = 14 / 3
    assert advantages([episode]) == [pytest.approx([5.5 - mean, 3 - mean, 4.5 + 10 - mean, -4.5 + 1 - mean])]


def test_tasks_are_judged_apart(advantages: Advantages) -> None:
    alone, other = forest(SMALL), forest([True, [True, False]], "other")
    TreeGrpo()([alone])
    before = advantages([alone])
    TreeGrpo()([alone, other])
    assert advantages([alone]) == before


def test_an_unknown_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit\.value must be success or team_return, got 'reward'"):
        TreeGrpo(value="reward")  # type: ignore[arg-type]


TREES = st.recursive(st.booleans(), lambda child: st.lists(child, min_size=1, max_size=3), max_leaves=8)


@given(st.lists(TREES, min_size=1, max_size=3))
def test_the_formula_written_plainly(trees: list[Tree]) -> None:
    """(v - mean) / (std + floor) of a message's v, the mean of the leaves below it: in its tree and in the task."""
    episode = forest(trees)
    TreeGrpo(std_floor=0.1)([episode])

    def standard(v: float, group: list[float]) -> float:
        return (v - fmean(group)) / (stdev(group) + 0.1) if len(set(group)) > 1 else 0.0

    def walk(children: list[Tree], tree: list[float] | None) -> list[float]:
        """Advantages of the nodes in their order: a node's own, then those below each of its messages."""
        groups = [tree or below(child) for child in children]
        pairs = list(zip(children, groups, strict=True))
        own = [standard(fmean(below(c)), group) + standard(fmean(below(c)), below(trees)) for c, group in pairs]
        return own + [a for c, group in pairs if isinstance(c, list) for a in walk(c, group)]

    assert [candidate.advantage for _, candidate in episode.candidates()] == pytest.approx(walk(trees, None), abs=1e-9)


def below(tree: Tree) -> list[float]:
    return [leaf for child in tree for leaf in below(child)] if isinstance(tree, list) else [float(tree)]


@given(st.lists(TREES, min_size=1, max_size=3))
def test_over_the_leaves_the_advantages_sum_to_0(trees: list[Tree]) -> None:
    episode = forest(trees)
    TreeGrpo()([episode])
    first = [candidate.advantage or 0.0 for candidate in episode.nodes[0].candidates]
    assert sum(a * len(below(tree)) for a, tree in zip(first, trees, strict=True)) == pytest.approx(0, abs=1e-6)

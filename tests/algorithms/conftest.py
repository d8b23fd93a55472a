"""Episodes to be judged, without a world: chains of messages, and nodes with given rewards."""

from collections.abc import Callable, Sequence

import pytest

from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task


def said(tokens: int = 1, logprob: float = -0.5) -> Completion:
    return Completion((1,) * tokens, (logprob,) * tokens, "U", "stop", "policy", 0)


@pytest.fixture
def chain() -> Callable[..., Episode]:
    """``chain(value, agents, ...)``: an episode whose ``agents`` spoke one after the other, turn by turn.

    ``team`` and ``local`` are the messages' rewards, ``states`` and ``anchors`` those of the world, ``tokens`` lengths.
    """

    def build(
        value: float,
        agents: Sequence[str],
        *,
        task: str = "t",
        sample: int = 0,
        turns: Sequence[int] | None = None,
        team: Sequence[float] | None = None,
        local: Sequence[float] | None = None,
        states: Sequence[str] | None = None,
        anchors: Sequence[str] | None = None,
        tokens: Sequence[int] | None = None,
    ) -> Episode:
        count = len(agents)
        zeros = [0.0] * count
        turns, team, local = turns or range(count), team or zeros, local or zeros
        states, tokens = states or [f"{sample}/{i}" for i in range(count)], tokens or [1] * count
        nodes = [
            Node(
                task,
                agent,
                turns[i],
                (sample, i),
                [Candidate(said(tokens[i]), local[i], team[i], team[i] + local[i], continued=True)],
                state=states[i],
                anchor=anchors[i] if anchors else None,
            )
            for i, agent in enumerate(agents)
        ]
        edges = [JointAction({agent: (i, 0)}, child=i + 1) for i, agent in enumerate(agents[:-1])]
        edges.append(JointAction({agents[-1]: (count - 1, 0)}, outcome=Outcome(value > 0, count, value, value)))
        return Episode(Task(task, "train", {}), nodes, edges, sample=sample)

    return build


@pytest.fixture
def tree() -> Callable[..., Episode]:
    """``tree((agent, turn, rewards), ...)``: an episode of nodes; a reward is a number, or (team, local)."""

    def build(*nodes: tuple[str, int, Sequence[float | tuple[float, float]]], task: str = "t") -> Episode:
        found = []
        for i, (agent, turn, rewards) in enumerate(nodes):
            pairs = [r if isinstance(r, tuple) else (r, 0.0) for r in rewards]
            found.append(Node(task, agent, turn, (i,), [Candidate(said(), b, a, a + b) for a, b in pairs]))
        return Episode(Task(task, "train", {}), found, [])

    return build


@pytest.fixture
def advantages() -> Callable[[Sequence[Episode]], list[list[float | None]]]:
    """The advantages of each episode's candidates."""
    return lambda episodes: [[candidate.advantage for _, candidate in episode.candidates()] for episode in episodes]

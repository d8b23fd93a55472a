"""Tasks ahead of the updates: the bound on versions, each task once, twins apart, errors and states."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.experience import Candidate, Completion, Episode, Node, Task
from troupe.rollout.ahead import Ahead

POLICIES = ("tool", "plan")


class Team:
    """Policies whose versions grow, and tasks that take as many passes of the event loop as they are told."""

    def __init__(self, passes: Callable[[str], int] = lambda task_id: 3, kinds: int = 1000) -> None:
        self.versions, self.passes, self.kinds = dict.fromkeys(POLICIES, 0), passes, kinds
        self.begun: list[tuple[str, int]] = []

    def draw(self, batch: int, size: int) -> list[Task]:
        """Different ones; those of batches may be the same, where there are few ``kinds``."""
        chosen = Random(batch).sample(range(self.kinds), size)
        return [Task(f"task-{number}", "train", {}) for number in chosen]

    async def play(self, task: Task, batch: int) -> list[Episode]:
        self.begun.append((task.task_id, batch))
        episode = Episode(task, [], [])
        for turn in range(self.passes(task.task_id)):
            for policy in POLICIES:
                spoken = Completion((1,), (0.0,), "", "stop", policy, self.versions[policy])
                episode.nodes.append(Node(task.task_id, policy, turn, (1,), [Candidate(spoken, 0, 0, 0)]))
            await asyncio.sleep(0)
        return [episode]

    def ahead(self, bound: int) -> Ahead:
        return Ahead(bound, self.draw, self.play, lambda: self.versions)

    def ages(self, taken: Sequence[Sequence[Episode]], policy: str) -> Iterator[int]:
        for episodes in taken:
            for _, candidate in (pair for episode in episodes for pair in episode.candidates()):
                if candidate.completion.policy == policy:
                    yield self.versions[policy] - candidate.completion.version


async def passes(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def ids(taken: Sequence[Sequence[Episode]]) -> list[str]:
    return [episode.task.task_id for (episode,) in taken]


@settings(max_examples=60)
@given(
    bound=st.integers(1, 3),
    size=st.integers(1, 4),
    kinds=st.sampled_from([5, 20, 10**9]),
    durations=st.lists(st.integers(0, 60), min_size=40, max_size=40),
    updates=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 12)), min_size=1, max_size=10),
    stopped=st.integers(0, 10),
)
def test_no_message_is_older_than_the_bound_and_every_task_is_taken_once(
    bound: int,
    size: int,
    kinds: int,
    durations: list[int],
    updates: list[tuple[bool, bool, int]],
    stopped: int,
) -> None:
    """Whatever the tasks take, whichever policies learn and for how long, and wherever the run is continued."""
    team = Team(lambda task_id: durations[int(task_id.removeprefix("task-")) % 40], kinds)

    async def run() -> list[str]:
        ahead, found = team.ahead(bound), []
        for iteration, (*learning, passing) in enumerate(updates):
            if iteration == stopped:
                state = ahead.state_dict()
                await ahead.stop()
                assert ahead.state_dict() == state
                ahead = team.ahead(bound)
                ahead.load_state_dict(state)
            while ahead.next_batch <= min(iteration + bound, len(updates) - 1):
                ahead.begin(size)
            taken = await asyncio.wait_for(ahead.take(size), 10)
            assert len(taken) == len(set(ids(taken)))
            assert len(taken) == size or kinds < 10**9, "fewer, and then more, only where tasks wait for their twins"
            for policy in POLICIES:
                assert max(team.ages(taken, policy), default=0) <= bound
            await passes(passing)
            ahead.learnt()
            for policy, learns in zip(POLICIES, learning, strict=True):
                team.versions[policy] += learns
            found += ids(taken)
        left = [team.draw(batch, count)[index].task_id for batch, count, index in ahead.state_dict()["left"]]
        assert not left or kinds < 10**9
        await ahead.stop()
        return found + left

    expected = [task.task_id for batch in range(len(updates)) for task in team.draw(batch, size)]
    assert sorted(asyncio.run(run())) == sorted(expected)


async def test_tasks_go_on_while_a_slow_one_is_left_for_the_next_iteration() -> None:
    team = Team()
    slow = team.draw(0, 2)[0].task_id
    team.passes = lambda task_id: 10_000 if task_id == slow else 2
    ahead = team.ahead(2)
    for _ in range(3):
        ahead.begin(2)
    assert slow not in ids(await ahead.take(2))
    ahead.learnt()
    await passes(20)
    assert (ahead.begun, ahead.under_way) == (4, 1)
    await ahead.stop()


async def test_a_task_waits_for_its_twin() -> None:
    team = Team(kinds=2)  # both batches have the same tasks
    ahead = team.ahead(1)
    ahead.begin(2)
    ahead.begin(2)
    await passes(20)
    assert sorted(batch for _, batch in team.begun) == [0, 0]
    assert len(await ahead.take(2)) == 2
    await passes(1)
    assert sorted(batch for _, batch in team.begun) == [0, 0, 1, 1]
    assert len(await ahead.take(4)) == 2, "no more than there are"


async def test_what_a_task_raises_is_raised_at_once_though_another_goes_on_for_ever() -> None:
    team = Team()
    first, second = (task.task_id for task in team.draw(0, 2))
    cancelled = []

    async def play(task: Task, batch: int) -> list[Episode]:
        if task.task_id == second:
            raise KeyError("my_key")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(task.task_id)
            raise
        raise AssertionError

    ahead = Ahead(1, team.draw, play, lambda: team.versions)
    ahead.begin(2)
    with pytest.raises(KeyError, match="my_key"):
        await ahead.take(1)
    await ahead.stop()
    assert cancelled == [first]
    assert ahead.state_dict()["left"] == [[0, 2, 0], [0, 2, 1]]


async def test_what_was_taken_is_left_until_it_is_learnt_from() -> None:
    ahead = Team().ahead(1)
    ahead.begin(2)
    await ahead.take(2)
    assert ahead.state_dict() == {"next_batch": 1, "left": [[0, 2, 0], [0, 2, 1]]}
    ahead.learnt()
    assert ahead.state_dict() == {"next_batch": 1, "left": []}


def test_a_bound_of_0_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Team().ahead(0)

"""Tasks ahead of the updates: the bound on versions, each task once, twins apart, errors and states."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.experience import Candidate, Completion, Episode, Node, Sampling, Task
from troupe.models.bases.loading import load_tokenizer
from troupe.rollout.ahead import Ahead, HeldEngine, MaySpeak, held
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.scripted import ScriptedEngine

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

    async def play(self, task: Task, batch: int, may_speak: MaySpeak) -> list[Episode]:
        self.begun.append((task.task_id, batch))
        episode = Episode(task, [], [])
        for turn in range(self.passes(task.task_id)):
            for policy in POLICIES:
                await may_speak(policy)
                spoken = Completion((1,), (0.0,), "", "stop", policy, self.versions[policy])
                episode.nodes.append(Node(task.task_id, policy, turn, (1,), [Candidate(spoken, 0, 0, 0)]))
            await asyncio.sleep(0)
        return [episode]

    def ahead(self, bound: int, bounds: Mapping[str, int] | None = None) -> Ahead:
        return Ahead(bound, self.draw, self.play, lambda: self.versions, bounds)

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
    own=st.dictionaries(st.sampled_from(POLICIES), st.integers(0, 2)),
)
def test_no_message_is_older_than_the_bound_and_every_task_is_taken_once(
    bound: int,
    size: int,
    kinds: int,
    durations: list[int],
    updates: list[tuple[bool, bool, int]],
    stopped: int,
    own: dict[str, int],
) -> None:
    """Whatever the tasks take, whichever policies learn and for how long, and wherever the run is continued."""
    team = Team(lambda task_id: durations[int(task_id.removeprefix("task-")) % 40], kinds)
    bounds = {policy: smaller for policy, smaller in own.items() if smaller < bound}

    async def run() -> list[str]:
        ahead, found = team.ahead(bound, bounds), []
        for iteration, (*learning, passing) in enumerate(updates):
            if iteration == stopped:
                state = ahead.state_dict()
                await ahead.stop()
                assert ahead.state_dict() == state
                ahead = team.ahead(bound, bounds)
                ahead.load_state_dict(state)
            while ahead.next_batch <= min(iteration + bound, len(updates) - 1):
                ahead.begin(size)
            taken = await asyncio.wait_for(ahead.take(size, iteration), 10)
            assert len(taken) == len(set(ids(taken)))
            assert len(taken) == size or kinds < 10**9, "fewer, and then more, only where tasks wait for their twins"
            for policy in POLICIES:
                assert max(team.ages(taken, policy), default=0) <= bounds.get(policy, bound)
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
    assert slow not in ids(await ahead.take(2, 0))
    ahead.learnt()
    await passes(20)
    assert (ahead.begun, ahead.under_way) == (4, 1)
    await ahead.stop()


async def test_a_policy_of_bound_0_speaks_with_its_present_weights_while_another_has_spoken_ahead() -> None:
    """By hand: ``tool`` speaks first, ``plan`` (bound 0) second.  While the policies learn from batch 0, batch 1 has
    the first message of ``tool`` and waits; the update is then between the two messages of its episodes.
    """
    team = Team(lambda task_id: 1)
    ahead = team.ahead(1, {"plan": 0})
    ahead.begin(2)
    ahead.begin(2)
    first = await ahead.take(2, 0)
    assert [*team.ages(first, "tool"), *team.ages(first, "plan")] == [0, 0, 0, 0]
    await passes(20)
    assert len(team.begun) == 4 and ahead.under_way == 2, "all of batch 1 wait for plan's turn"
    ahead.learnt()
    team.versions = dict.fromkeys(POLICIES, 1)
    second = await ahead.take(2, 1)
    assert (list(team.ages(second, "tool")), list(team.ages(second, "plan"))) == ([1, 1], [0, 0])


async def test_fewer_tasks_than_were_drawn_do_not_wait_for_those_that_may_not_end_yet() -> None:
    """As where a budget of completions ends: batches are of 3 tasks, and an iteration takes 2."""
    team = Team(lambda task_id: 1)
    ahead = team.ahead(2, {"plan": 0})
    for _ in range(3):
        ahead.begin(3)
    assert len(await asyncio.wait_for(ahead.take(2, 0), 10)) == 3, "those that the update would make too old"
    await ahead.stop()


async def test_a_task_waits_for_its_twin() -> None:
    team = Team(kinds=2)  # both batches have the same tasks
    ahead = team.ahead(1)
    ahead.begin(2)
    ahead.begin(2)
    await passes(20)
    assert sorted(batch for _, batch in team.begun) == [0, 0]
    assert len(await ahead.take(2, 0)) == 2
    await passes(1)
    assert sorted(batch for _, batch in team.begun) == [0, 0, 1, 1]
    assert len(await ahead.take(4, 0)) == 2, "no more than there are"


async def test_what_a_task_raises_is_raised_at_once_though_another_goes_on_for_ever() -> None:
    team = Team()
    first, second = (task.task_id for task in team.draw(0, 2))
    cancelled = []

    async def play(task: Task, batch: int, may_speak: MaySpeak) -> list[Episode]:
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
        await ahead.take(1, 0)
    await ahead.stop()
    assert cancelled == [first]
    assert ahead.state_dict()["left"] == [[0, 2, 0], [0, 2, 1]]


async def test_what_was_taken_is_left_until_it_is_learnt_from() -> None:
    ahead = Team().ahead(1)
    ahead.begin(2)
    await ahead.take(2, 0)
    assert ahead.state_dict() == {"next_batch": 1, "left": [[0, 2, 0], [0, 2, 1]]}
    ahead.learnt()
    assert ahead.state_dict() == {"next_batch": 1, "left": []}


def test_the_clients_of_all_tasks_know_the_same_texts() -> None:
    tokenizer = load_tokenizer("laptop_signalling")
    client = PolicyClient("p", ScriptedEngine({}, tokenizer), tokenizer, 64, Sampling())
    own = [held({"ann": client, "bob": client}, ["p"], passes)["ann"] for _ in range(2)]  # type: ignore[arg-type]
    assert own[0]._tokens is own[1]._tokens is client._tokens
    assert isinstance(own[0].engine, HeldEngine) and own[0].engine is not own[1].engine


def test_a_bound_of_0_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Team().ahead(0)

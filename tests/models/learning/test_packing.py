"""Samples -> TokenBatches: nothing is lost, nothing is mixed up, and the limits hold."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.experience import Sample, TokenBatch
from troupe.models.learning.packing import draw_rows, micro_batches, mini_batches, pack, rows_of

from ..conftest import Groups


def read_back(batches: list[TokenBatch]) -> list[tuple[tuple[int, ...], tuple[int, ...], float, float]]:
    """(prompt, completion, advantage, weight) of every candidate, read back from the packed tokens."""
    found = []
    for batch in batches:
        for b, sources in enumerate(batch.sources):
            first, answer = int(sources[0]), tuple(batch.targets[b][batch.mask[b]].tolist())
            prompt = seen_by(batch, first)
            for i, source in enumerate(sources[batch.mask[b]].tolist()):
                assert seen_by(batch, source) == (*prompt, *answer[:i])
                assert batch.positions[source] == len(prompt) + i - 1
            found.append((prompt, answer, float(batch.advantages[b, 0]), float(batch.weights[b])))
    return found


def seen_by(batch: TokenBatch, token: int) -> tuple[int, ...]:
    """The tokens up to this one of its sequence."""
    ids = batch.input_ids.tolist()
    return tuple(ids[k] for s in batch.segments for k in range(s.start, s.end) if k <= token < s.stop)


def contents(samples: list[Sample]) -> list[tuple[tuple[int, ...], tuple[int, ...], float, float]]:
    return [(s.prompt_ids, s.token_ids, s.advantage, s.weight) for s in samples]


def flat(groups: Groups) -> list[Sample]:
    return [sample for group in groups for sample in group]


def test_pack_by_hand() -> None:
    row = [
        Sample("p", (5, 6, 5, 6, 8), (7, 1), (-0.5, -4.0), advantage=1.5, weight=0.25, agent="tool", turn=2),
        Sample("p", (5, 6, 5, 6, 8), (7, 2, 3), (-0.5, -4.0, -1.0), advantage=2.0, weight=0.5),
        Sample("p", (5, 6, 5, 6, 8, 7, 2, 9), (3,), (-2.0,), advantage=1.0, weight=0.5),  # the next turn
    ]
    other = [Sample("p", (8,), (9, 10), (-1.0, -2.0), advantage=-1.0, weight=0.25)]
    batch = pack([row, other])
    assert batch.input_ids.tolist() == [5, 6, 5, 6, 8, 7, 8, 7, 2, 9, 8, 9]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 0, 1]
    later = [(6, 9, 10, True), (9, 10, 10, True), (10, 12, 12, True)]
    assert batch.segments == [(0, 4, 10, False), (4, 6, 6, True), *later]
    assert batch.targets.tolist() == [[7, 1, 0], [7, 2, 3], [3, 0, 0], [9, 10, 0]]
    assert batch.sources[batch.mask].tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    assert batch.mask.sum(1).tolist() == [2, 3, 1, 2]
    assert batch.places == [("tool", 2), ("", 0), ("", 0), ("", 0)]
    assert batch.behaviour_logprobs.tolist() == [[-0.5, -4, 0], [-0.5, -4, -1], [-2, 0, 0], [-1, -2, 0]]
    assert batch.advantages[:, 0].tolist() == [1.5, 2.0, 1.0, -1.0]
    assert batch.weights.tolist() == [0.25, 0.5, 0.5, 0.25]


@given(seed=st.integers(0, 10_000))
def test_every_sequence_is_read_back_from_a_tree(seed: int) -> None:
    """Sequences over few words, which often begin alike, at any place."""
    rng = Random(seed)
    texts: list[tuple[int, ...]] = [(1,) * 6]
    samples = []
    for _ in range(rng.randint(1, 12)):
        prompt = (*rng.choice(texts), *(rng.randint(1, 2) for _ in range(rng.randint(0, 9))))
        answer = tuple(rng.randint(1, 2) for _ in range(rng.randint(1, 9)))
        samples.append(Sample("p", prompt, answer, (-1.0,) * len(answer), 1.0, rng.randint(1, 8) / 8))
        texts += [prompt, prompt + answer]
    for max_tokens in (1, 30, 10_000):
        batches = micro_batches(samples, max_tokens)
        assert sorted(read_back(batches)) == sorted(contents(samples))
        assert all(len(batch.input_ids) <= max_tokens or len(batch.weights) == 1 for batch in batches)


@pytest.mark.parametrize("max_tokens", [1, 12, 40, 10_000])
def test_micro_batches_hold_every_sample_that_matters_once(groups: Callable[..., Groups], max_tokens: int) -> None:
    samples = flat(groups(count=8))
    batches = micro_batches(samples, max_tokens)
    assert sorted(read_back(batches)) == sorted(contents([s for s in samples if s.advantage != 0]))
    assert len(read_back(batches)) < len(samples)  # some have advantage 0
    for batch in batches:
        assert len(batch.input_ids) <= max_tokens or len(batch.weights) == 1


def test_micro_batches_are_filled(groups: Callable[..., Groups]) -> None:
    samples = flat(groups(count=8))
    assert len(micro_batches(samples, 10_000)) == 1
    # Of like length: with the longest rows 9 + 18 tokens, 108 tokens must hold at least 4 rows, the last batch aside.
    batches = micro_batches(samples, 108)
    assert len(batches) > 1
    assert all(len(batch.input_ids) >= 4 for batch in batches[:-1])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_mini_batches_are_whole_groups_with_weights_that_sum_to_1(groups: Callable[..., Groups], count: int) -> None:
    given = groups(count=7, k=3)
    parts = mini_batches(given, count, Random(0))
    assert len(parts) == count
    of_group = {id(group): {s.token_ids for s in group} for group in given}
    homes = []
    for part in parts:
        assert sum(s.weight for s in part) == pytest.approx(1, abs=1e-12)
        answers = [s.token_ids for s in part]
        inside = [members for members in of_group.values() if members & set(answers)]
        assert all(members <= set(answers) for members in inside)
        homes += answers
        assert abs(len(part) - 21 / count) < 3  # nearly equal: they differ by at most a group
    assert sorted(homes) == sorted(s.token_ids for s in flat(given))


def test_mini_batches_keep_the_proportions_of_weights() -> None:
    group = [Sample("p", (4,), (5,), (-1.0,), 1.0, weight=0.1), Sample("p", (4,), (6,), (-1.0,), 1.0, weight=0.3)]
    ((one, other),) = mini_batches([group], 1, Random(0))
    assert (one.weight, other.weight) == (pytest.approx(0.25), pytest.approx(0.75))


def by_episode(lengths: list[int]) -> Groups:
    """One group per task of one episode, of so many messages: each message has weight 1 / tasks."""
    return [
        [Sample("p", (4,), (t, i), (-1.0, -1.0), 1.0, 1 / len(lengths), share=1 / len(lengths) / n) for i in range(n)]
        for t, n in enumerate(lengths)
    ]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_mini_batches_by_episode_are_right_on_average(count: int) -> None:
    """Over the splits, the mean of a message's weight in the mean of the mini-batches is its weight in the whole."""
    given, splits = by_episode([1, 2, 6, 3]), 1200
    total: Counter[tuple[int, ...]] = Counter()
    for seed in range(splits):
        for part in mini_batches(given, count, Random(seed)):
            total.update({s.token_ids: s.weight / count / splits for s in part})
    for group in given:
        for sample in group:
            assert total[sample.token_ids] == pytest.approx(sample.weight, rel=0.06 if count == 3 else 1e-9)


def test_a_mini_batch_by_episode_is_divided_by_its_share_of_the_groups() -> None:
    """Half of the tasks: twice the weight, however many messages they have."""
    parts = mini_batches(by_episode([1, 2, 6, 3]), 2, Random(0))
    assert [sample.weight for part in parts for sample in part] == pytest.approx([1 / 4 * 2] * 12)


def test_mini_batches_are_drawn_from_the_given_source(groups: Callable[..., Groups]) -> None:
    given = groups(count=16, k=2)
    first = mini_batches(given, 4, Random(1))
    assert first == mini_batches(given, 4, Random(1))
    assert first != mini_batches(given, 4, Random(2))


def test_no_more_mini_batches_than_groups(groups: Callable[..., Groups]) -> None:
    assert len(mini_batches(groups(count=2), 5, Random(0))) == 2
    assert mini_batches([], 5, Random(0)) == []


@pytest.mark.parametrize("world", [2, 3, 20])
def test_processes_share_a_mini_batch_by_rows(groups: Callable[..., Groups], world: int) -> None:
    samples = flat(groups(count=4, k=4))
    whole = read_back(micro_batches(samples, 40))
    shares = [micro_batches(samples, 40, rank, world) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1  # as many backward passes in every process
    live = [candidate for share in shares for candidate in read_back(share) if candidate[3]]
    assert sorted(live) == sorted(whole)
    idle = [batch for share in shares for batch in share if not batch.weights.any()]
    assert idle or world < 20  # rows are fewer
    assert all(len(batch.input_ids) <= 40 for batch in idle)


def test_nothing_to_learn_is_nothing_for_every_process(groups: Callable[..., Groups]) -> None:
    flatter = [replace(sample, advantage=0.0) for sample in flat(groups())]
    assert [micro_batches(flatter, 40, rank, 2) for rank in (0, 1)] == [[], []]


def test_samples_without_advantage_are_kept_where_they_matter() -> None:
    given = [Sample("p", (5, i), (6, 1), (-1.0, -1.0), advantage, 0.5) for i, advantage in enumerate((2.0, 0.0))]
    assert [len(b.weights) for b in micro_batches(given, 100)] == [1]
    assert [len(b.weights) for b in micro_batches(given, 100, every_sample=True)] == [2]


def test_weights_by_tokens() -> None:
    group = [Sample("p", (4,), (5,) * n, (-1.0,) * n, 1.0, weight=0.5) for n in (1, 3)]
    ((one, other),) = mini_batches([group], 1, Random(0), by_tokens=True)
    assert (one.weight, other.weight) == (0.25, 0.75)
    assert len(pack(rows_of([one, other])).weights) == 2


# ---- drawing rows ----------------------------------------------------------------------------------------------------


def many() -> list[Sample]:
    """Forty prompts of the planner's and three of the tool's, of two samples each."""
    places = [("plan", 3)] * 40 + [("tool", 0)] * 3
    return [Sample("p", (i,), (j,), (0.0,), 0.0, 0.1, *place) for i, place in enumerate(places) for j in range(2)]


@pytest.mark.parametrize(("share", "planner", "tool"), [(0.1, 4, 1), (0.25, 10, 1), (0.5, 20, 2), (1.0, 40, 3)])
def test_a_share_of_the_prompts_of_each_place_is_drawn(share: float, planner: int, tool: int) -> None:
    found = draw_rows(many(), share, Random(0))
    assert Counter(s.agent for s in found) == {"plan": 2 * planner, "tool": 2 * tool}
    assert {s.weight for s in found} == {40 / planner, 3 / tool}
    assert set(Counter((s.agent, s.prompt_ids) for s in found).values()) == {2}  # prompts are drawn whole
    assert found == draw_rows(many(), share, Random(0)) and (share == 1 or found != draw_rows(many(), share, Random(1)))


def test_nothing_is_drawn_from_nothing_and_with_a_share_of_0() -> None:
    assert draw_rows([], 0.5, Random(0)) == draw_rows(many(), 0.0, Random(0)) == []


@pytest.mark.slow
def test_sums_are_right_on_average() -> None:
    """Of a value that only two prompts have, among them one of the tool's."""
    value = {5: 7.0, 41: 2.0}
    rng, draws = Random(0), 4000
    total = sum(s.weight * value.get(s.prompt_ids[0], 0.0) for _ in range(draws) for s in draw_rows(many(), 0.2, rng))
    assert total / draws == pytest.approx(2 * (7 + 2), rel=0.05)


def test_penalties_are_taken_off_token_by_token() -> None:
    given = Sample("p", (5, 6), (7, 8), (-1.0, -1.0), 1.0, 0.5, penalties=(0.25, -0.5))
    plain = Sample("p", (5, 6), (7, 8, 9), (-1.0,) * 3, 2.0, 0.5)
    batch = pack([[given, plain]])
    assert batch.advantages[batch.mask].tolist() == [0.75, 1.5, 2.0, 2.0, 2.0]

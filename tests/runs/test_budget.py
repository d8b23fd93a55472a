"""The budget of a run, by hand."""

import sys

import pytest

from troupe.runs.budget import Budget, LoopSettings
from troupe.runs.progress import Progress


@pytest.mark.parametrize(
    ("completions", "iteration", "exhausted"),
    [(0, 4, False), (999, 4, False), (1000, 4, True), (1001, 4, True), (0, 5, True)],
)
def test_a_budget_ends_with_its_iterations_or_its_completions(
    completions: int, iteration: int, exhausted: bool
) -> None:
    assert Budget(5, 8, 1000).exhausted(iteration, completions) is exhausted
    assert Budget(5, 8, 0).exhausted(iteration, completions) is (iteration == 5)


def test_without_a_bound_or_a_known_cost_every_task_is_within_the_budget() -> None:
    for budget, progress in (
        (Budget(5, 8, 0), Progress(iteration=1, completions=999, task_cost=10.0)),
        (Budget(5, 8, 1000), Progress()),
    ):
        assert budget.tasks_within_budget(progress) == sys.maxsize
        assert budget.next_tasks(progress) == 8
        assert budget.expected_iterations(progress) == 5


def test_the_last_iteration_plays_what_is_left() -> None:
    budget = Budget(iterations=50, tasks_per_iteration=8, completions=1000)
    progress = Progress(iteration=6, completions=860, task_cost=20.0)  # 140 completions left: 7 tasks
    assert (budget.tasks_within_budget(progress), budget.next_tasks(progress)) == (7, 7)
    assert budget.expected_iterations(progress) == 6 + 1
    progress.completions = 500  # 25 tasks: 3 whole iterations and a task
    assert (budget.next_tasks(progress), budget.expected_iterations(progress)) == (8, 6 + 4)
    progress.completions = 995  # a quarter of a task: one is played all the same
    assert (budget.tasks_within_budget(progress), budget.next_tasks(progress)) == (0, 1)
    progress.completions = 1100
    assert (budget.next_tasks(progress), budget.expected_iterations(progress)) == (1, 6)


GOOD = {
    "iterations": 0,
    "tasks_per_iteration": 1,
    "completions": 0,
    "eval_every": 1,
    "validation_tasks": 1,
    "test_tasks": 1,
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("below", [1, 0.5])
def test_settings_out_of_range_are_named(name: str, below: float) -> None:
    LoopSettings(**GOOD)
    with pytest.raises(ValueError, match=rf"loop\.{name} must be a whole number of at least {GOOD[name]}"):
        LoopSettings(**GOOD | {name: GOOD[name] - below})


def test_tasks_ahead_are_those_of_so_many_iterations_and_of_the_budget() -> None:
    def begun(budget: Budget, progress: Progress, batch: int, before: int) -> int:
        return budget.tasks_ahead(progress, batch, before, staleness=2)

    free, progress = Budget(5, 8, 0), Progress(iteration=1)
    assert [begun(free, progress, batch, 8) for batch in (2, 3, 4)] == [8, 8, 0]  # iterations 1, 2 and 3
    assert begun(free, Progress(iteration=3), 5, 16) == 0  # the run has five
    bounded = Budget(50, 8, 1000)
    assert [begun(bounded, Progress(), 0, 0), begun(bounded, Progress(), 1, 8)] == [8, 0]  # a task's cost is not known
    # 20 tasks are left, 16 of them begun; at the end an iteration has one at least.
    late = Progress(iteration=10, completions=800, task_cost=10.0)
    assert [begun(bounded, late, 12, 16), begun(bounded, late, 12, 20)] == [4, 0]
    assert begun(bounded, Progress(iteration=12, completions=996, task_cost=10.0), 13, 0) == 1

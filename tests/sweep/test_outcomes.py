"""Results by task, from episodes and back from files."""

from troupe.sweep.outcomes import Outcomes


def test_lost_episodes_are_no_failures() -> None:
    results = {"a": True, "b": False, "c": False, "d": False}
    episodes = [{"task_id": task, "success": success} for task, success in results.items()]
    episodes[2]["lost"] = "world"
    outcomes = Outcomes.of(episodes)
    assert outcomes.values == (1.0, 0.0, None, 0.0) and outcomes.mean == 1 / 3
    assert Outcomes.unpacked(outcomes.packed()) == outcomes

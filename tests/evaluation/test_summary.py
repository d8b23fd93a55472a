"""Metrics of episodes, by hand."""

from functools import partial

import pytest

from troupe.evaluation.episodes import EpisodeResult
from troupe.evaluation.statistics import wilson
from troupe.evaluation.summary import episode_rows, summarise, summarise_samples


def message(agent: str, team: float, local: float, **info: float) -> dict[str, object]:
    return {"turn": 0, "agent": agent, "saw": "", "said": "", "team": team, "local": local, **info}


tool, plan = partial(message, "tool"), partial(message, "plan")


def test_a_summary_by_hand() -> None:
    results = [
        EpisodeResult(
            "a", True, 1, [message("tool", 1, 0.1, malformed=0, blocked=0), message("plan", 1, 0.1, malformed=0)]
        ),
        EpisodeResult(
            "b", False, 4, [message("tool", 0, 0.0, malformed=1, blocked=1), message("plan", 0, 0.05, malformed=1)]
        ),
        EpisodeResult(
            "c", True, 2, [message("tool", 0, 0.3, malformed=0, blocked=1), message("plan", 1, 0.0, malformed=0)]
        ),
        EpisodeResult("d", True, 3, [tool(1, 0.0, malformed=0, blocked=0)], 10, 20, 7),
    ]
    summary = summarise(results)
    low, high = summary.pop("success_ci95")
    assert summary == {
        "success": 0.75,
        "turns": 2.5,
        "episodes": 4,
        "lost_episodes": 0,
        "tokens": 10,
        "prompt_tokens": 20,
        "env_steps": 7,
        "tool/reward": pytest.approx((1.1 + 0 + 0.3 + 1) / 4),
        "tool/malformed": 0.25,
        "tool/blocked": 0.5,
        "plan/reward": pytest.approx((1.1 + 0.05 + 1) / 3),
        "plan/malformed": pytest.approx(1 / 3),
    }
    assert (low, high) == wilson(3, 4)


def test_a_summary_of_samples_by_hand() -> None:
    wins = {"a": (1, 1, 0, 1), "b": (0, 0, 0, 0), "c": (1, 0, 0, 0), "d": (1, 1, 1, 1)}
    samples = [[EpisodeResult(task, bool(row[i]), 2 * i, []) for task, row in wins.items()] for i in range(4)]
    summary = summarise_samples(samples)
    assert (summary["success"], summary["success_ci95"]) == (0.75, list(wilson(3, 4)))
    assert (summary["tasks"], summary["samples"], summary["episodes"], summary["turns"]) == (4, 4, 16, 3)
    assert summary["avg@4"] == (0.75 + 0 + 0.25 + 1) / 4
    # Of 6 pairs: a fails in none, b in all, c in the 3 without its success.
    assert summary["pass@2"] == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert summary["pass@4"] == 0.75
    for name in ("avg@4", "pass@2", "pass@4"):
        low, high = summary[f"{name}_ci95"]
        assert 0 <= low < summary[name] < high <= 1
    assert {key for key in summary if "@" in key and "ci95" not in key} == {"avg@4", "pass@2", "pass@4"}


def test_one_sample_has_no_pass_at_k_and_three_have_two_and_three() -> None:
    task = [EpisodeResult("a", True, 1)]
    assert not [key for key in summarise_samples([task]) if "@" in key]
    three = summarise_samples([task] * 3)
    assert [key for key in three if "@" in key and "ci95" not in key] == ["avg@3", "pass@2", "pass@3"]


def test_a_task_that_lost_a_sample_is_in_no_pass_at_k() -> None:
    won, lost = EpisodeResult("a", True, 1), EpisodeResult("b", False, 0, lost="world")
    summary = summarise_samples([[won, EpisodeResult("b", True, 1)], [won, lost]])
    assert (summary["avg@2"], summary["pass@2"], summary["lost_episodes"]) == (1.0, 1.0, 1)


def test_pass_at_the_ks_that_are_asked_for() -> None:
    won, lost = EpisodeResult("a", True, 1), EpisodeResult("a", False, 1)
    asked = summarise_samples([[won], [lost], [lost], [lost]], ks=(1, 3, 10))  # 10: of another condition
    rates = {key: value for key, value in asked.items() if key.startswith("pass@") and "ci95" not in key}
    assert rates == {"pass@1": 0.25, "pass@3": 0.75}


def test_what_a_world_measures_is_averaged_over_the_messages_that_have_it() -> None:
    messages = [tool(0, 0, tests=0.5), tool(0, 0), tool(0, 0, tests=1.0, syntax=1), plan(0, 0, syntax=0)]
    summary = summarise([EpisodeResult("a", True, 2, messages)])
    assert (summary["tool/tests"], summary["tool/syntax"], summary["plan/syntax"]) == (0.75, 1, 0)
    assert "plan/tests" not in summary


def test_one_row_per_episode() -> None:
    messages = [tool(1, 0.5), plan(0, 0.25), tool(0, 0.25)]
    samples = [[EpisodeResult("a", True, 2, messages, 10, 20, 3)], [EpisodeResult("a", False, 1, messages[1:2])]]
    first, second = episode_rows("greedy", samples)
    assert (first["condition"], first["sample"], first["task_id"], first["success"]) == ("greedy", 0, "a", True)
    assert (first["tokens"], first["prompt_tokens"], first["env_steps"]) == (10, 20, 3)
    assert (first["tool/reward"], first["plan/reward"]) == ((1.5 + 0.25) / 2, 0.25)
    assert (second["sample"], second["success"], second["plan/reward"]) == (1, False, 0.25)
    assert "messages" not in first and "tool/reward" not in second

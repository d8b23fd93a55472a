"""The lazy-agent probe with scripted agents."""

from dataclasses import replace
from random import Random

from troupe.diagnostics.extra_episodes import PROBE, cost, influence
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Episode, Failure, Task

from .conftest import Play


async def test_only_messages_that_change_the_outcome_have_influence(play: Play, board: Task) -> None:
    """The planner solves the board now and then; what the tool says changes nothing, since it is ignored."""

    def ignoring(prompt: str, row: int, seed: int) -> str:
        if prompt.startswith("tool"):
            return ["", "box 2,2 R 2,3"][row]
        return "R R" if Random(f"{seed} {row}").random() < 0.3 else ""

    tasks = [replace(board, task_id=f"board-{i}") for i in range(12)]
    found = influence(await play(ignoring, Sokoban(horizon=2), PROBE, tasks))
    assert found["tool/influence"] == 0 < found["plan/influence"] < 0.5
    assert 0 <= found["probe_success"] < 1


async def test_equal_messages_have_none(play: Play) -> None:
    found = influence(await play(lambda prompt, row, seed: "U", Sokoban(horizon=2), PROBE, 3))
    pairs = {"plan/influence_pairs": 6, "tool/influence_pairs": 6}
    assert found == {"plan/influence": 0, "tool/influence": 0, "probe_success": 0} | pairs


async def test_the_cost_is_all_that_was_generated(play: Play) -> None:
    episodes = await play(lambda prompt, row, seed: "U", Sokoban(horizon=2), PROBE, 3)
    # Per task 4 messages of 2 samples, and 3 + 2 + 1 messages after the alternatives.
    assert cost(episodes, "probe")["probe_completions"] == 3 * (8 + 6)
    assert cost(episodes, "probe")["probe_env_steps"] == 3 * (4 + 4 + 6)


def test_lost_episodes_are_counted_and_say_nothing() -> None:
    lost = Episode(Task("t", "train", {}), [], [], failure=Failure("world", "broken"))
    assert influence([lost]) == {} and cost([lost], "probe")["probe_lost_episodes"] == 1

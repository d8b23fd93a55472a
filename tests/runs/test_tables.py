"""Episodes and trees as tables, and whose metric a key is."""

from collections.abc import Callable
from typing import Any

from troupe.runs.tables import LONGEST, candidate_table, episode_table, tree_table
from troupe.runs.trees import CANDIDATE_KEYS, NODE_KEYS, TREE_KEYS, tree_problem


def test_one_row_per_message(episode: Callable[..., Any]) -> None:
    played = episode("a", True, pictures=[["@.", "##"], [".@", "##"]])
    drawn = episode("b", False, pictures=[{"svg": "<svg/>", "text": "drawn"}])
    table = episode_table("test", [played, drawn])
    assert table.name == "episodes/test"
    tool, plan, other = (dict(zip(table.columns, row, strict=True)) for row in table.rows[:3])
    assert tool == {
        **{"episode": 0, "task": "a", "success": True, "turn": 0, "agent": "tool", "saw": "walls", "said": "R"},
        **{"team": 1.0, "local": 0.1, "picture": "@.\n##"},
    }
    assert plan["agent"] == "plan" and (other["episode"], other["picture"]) == (1, "drawn")
    assert [row[0] for row in table.head(1).rows] == [0, 0]


def test_one_row_per_candidate(tree: Callable[..., Any]) -> None:
    table = candidate_table([tree("t", 2, said="L" * (LONGEST + 5)), tree("u", 2)])
    assert len(table.rows) == 8
    first = dict(zip(table.columns, table.rows[0], strict=True))
    logged = dict(zip(table.columns, table.head(1).rows[0], strict=True))
    assert logged.pop("text") == "L" * LONGEST + " … 5 more characters"
    assert first.pop("text") == "L" * (LONGEST + 5) and first == logged
    assert first == {
        **{"episode": 0, "task": "t", "sample": 0, "watched": False, "node": 0, "parent": None, "turn": 0},
        **{"agent": "tool", "candidate": 0, "prompt": "walls", "reward": 0.0, "team": 0.0, "local": 0.0},
        **{"baseline": 0.5, "advantage": -0.5, "continued": False, "tokens": 1, "mean_logprob_nats": -0.5},
        "finish_reason": "stop",
    }


def test_what_a_tree_needs_is_enough_for_tables(tree: Callable[..., Any]) -> None:
    whole = tree("t", 2)
    nodes = [{key: node[key] for key in NODE_KEYS} for node in whole["nodes"]]
    for node in nodes:
        node["candidates"] = [{key: each[key] for key in CANDIDATE_KEYS} for each in node["candidates"]]
    least = {key: whole[key] for key in TREE_KEYS} | {"nodes": nodes}
    assert tree_problem(least) == ""
    assert (len(tree_table([least]).rows), len(candidate_table([least]).rows)) == (1, 4)


def test_one_row_per_tree(tree: Callable[..., Any]) -> None:
    even = tree("u", 2)
    for node in even["nodes"]:
        node["candidates"] = node["candidates"][:1]
    del even["edges"][1]["outcome"]  # it did not end
    table = tree_table([tree("t", 2), even])
    place = ("train", 0, False)
    assert table.rows == [
        (0, "t", *place, 2, 4, 4, 0.5, 2, 1, 1.0, 1.0, 1.0),
        (1, "u", *place, 2, 2, 4, 0.5, 0, 0, None, None, None),
    ]

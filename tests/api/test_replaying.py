"""Replay: episodes of a real run, forked with its own and with other policies."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from rich.console import Console

from troupe import Experiment, Run
from troupe.api.replaying import Replay, replay_episode
from troupe.errors import ConfigError
from troupe.evaluation.records import EvaluationError
from troupe.evaluation.replay import ReplayError
from troupe.setup.command_line import with_open_keys

from ..asked import evaluated

SMALL = (
    "seed=3 env.horizon=3 loop.iterations=1 loop.tasks_per_iteration=3 loop.test_tasks=8 loop.validation_tasks=2 "
    "diagnostics.trees.every=1 diagnostics.trees.tasks=3 algorithm.sampler.k=3"
).split()
Replayed = Callable[..., tuple[Replay, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("replayed") / "run"
    return Experiment.compose("sokoban_specialized", [*SMALL, f"run_dir={path}"]).train()


@pytest.fixture
def replayed(run: Run) -> Replayed:
    """``replayed("key=value", ...)``: the replay, and the console."""

    def asked(*words: str, path: Path = run.path) -> tuple[Replay, str]:
        with initialize_config_module("troupe.configs", version_base="1.3"):
            words = (f"run={path}", *words)
            keys: Any = OmegaConf.to_container(compose("replay", overrides=with_open_keys(words)))
        shown = io.StringIO()
        return replay_episode(keys, Console(file=shown, highlight=False, width=150)), shown.getvalue()

    return asked


def long_episode(run: Run, name: str) -> int:
    """The number of the first episode of two turns or more."""
    episodes = run.episode_files[name].episodes
    return next(n for n, episode in enumerate(episodes) if episode["turns"] > 1)


def untold(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the count of tokens, which a message that is played again does not have."""
    return [{key: value for key, value in message.items() if key != "tokens"} for message in messages]


@pytest.mark.parametrize("name", ["test_00001", "validation_00001"])
@pytest.mark.parametrize("place", ["turn=1", "turn=2", "turn=2 agent=plan"])
def test_the_policies_that_played_an_episode_repeat_it(run: Run, replayed: Replayed, name: str, place: str) -> None:
    number = long_episode(run, name)
    replay, shown = replayed(f"episode={name}/{number}", "checkpoint=last", *place.split())
    episode = run.episode_files[name].episodes[number]
    assert list(replay.before) == untold(episode["messages"])[: len(replay.before)]
    assert len(replay.before) == {"turn=1": 0, "turn=2": 2, "turn=2 agent=plan": 3}[place]
    (new,) = replay.new
    assert untold(new.messages) == untold(episode["messages"])
    assert (new.success, new.turns) == (episode["success"], episode["turns"])
    assert [list(picture) for picture in new.pictures] == episode["pictures"]
    assert replay.checked["pictures"] == (2 if "2" in place else 1)
    assert replay.checked.get("rewards", 0) == 2 * len(replay.before)
    assert f"{name}/{episode['task_id']}, forked at {place.split()[0].replace('=', ' ')}" in shown
    assert f"solved after {new.turns} turn" in shown


def test_other_policies_speak_from_the_fork_on(run: Run, replayed: Replayed) -> None:
    number = long_episode(run, "test_00001")
    replay, shown = replayed(f"episode=test_00001/{number}", "turn=2", "silence=[tool]", "echo.plan=tool", "samples=2")
    for new in replay.new:
        assert new.messages[:2] == list(replay.before)
        assert {message["said"] for message in new.messages[2:]} == {""} and new.turns == 3
    assert replay.speakers == {"tool": "silent", "plan": "echo of tool"} and "tool: silent" in shown
    assert "new 1" in shown and "new 2" in shown


@pytest.mark.slow
def test_other_sampling(run: Run, replayed: Replayed) -> None:
    place = f"episode=test_00001/{long_episode(run, 'test_00001')}"
    short, _ = replayed(place, "turn=1", "sampling.max_tokens=2", "agents.tool=base")
    assert short.new[0].tokens <= 2 * len(short.new[0].messages)
    greedy = [replayed(place, "turn=1", "sampling.temperature=0", f"seed={seed}")[0].new[0].messages for seed in (1, 2)]
    assert greedy[0] == greedy[1]
    with pytest.raises(ValueError, match=r"sampling\.top_p must be in \(0, 1\]"):
        replayed(place, "turn=1", "sampling.top_p=2")


@pytest.mark.slow
def test_training_trees(run: Run, replayed: Replayed) -> None:
    """Each tree, those of training tasks and the watched one, at each of its nodes and with each candidate."""
    trees = run.tree_records(0)
    assert {tree["watched"] for tree in trees} == {True, False}
    for number, tree in enumerate(trees):
        for node in (tree["nodes"][0], tree["nodes"][-1]):
            words = f"episode=train_00000/{number}", f"node={node['id']}", "checkpoint=base"
            replay, _ = replayed(*words, f"candidate={len(node['candidates'])}")
            assert [message["said"] for message in replay.before] == [
                next(c["text"] for c in each["candidates"] if c["continued"]) for each in tree["nodes"][: node["id"]]
            ]
            assert replay.agent == node["agent"]
            assert replay.new[0].messages[len(replay.before)]["said"] == node["candidates"][-1]["text"]
            assert [message.get("forced") for message in replay.continued(0)][:2] in ([True], [True, None])
            assert replay.stored.success == tree["edges"][-1]["outcome"]["success"]
            assert replay.checked["pictures"] == node["id"] + 1
    told = trees[0]["nodes"][0]["candidates"]
    best = next(c for c, candidate in enumerate(told) if candidate["continued"])
    same, shown = replayed("episode=train_00000/0", "turn=1", f"candidate={best + 1}")
    iterations = json.loads((run.checkpoint("best") / "state.json").read_text())["iteration"]
    assert same.weights.startswith(f"the tree's weights, after 0, are not kept: best (after {iterations} iteration")
    assert same.weights in shown and replay.weights == ""  # those of checkpoint=base are the tree's
    assert same.new[0].messages[0]["local"] == told[best]["local"]


@pytest.mark.slow
def test_later_evaluations(run: Run, replayed: Replayed) -> None:
    """In another world than the run's, of two conditions."""
    words = ["checkpoint=last", "world.horizon=2", "split=validation", "tasks=6", "name=later"]
    words += ["sampling.max_tokens=9"]
    evaluated(run.path, *words)
    for condition in ("horizon=2_sampled", "horizon=2_greedy"):
        file = run.path / "evaluations" / "later" / "episodes" / f"{condition}.jsonl"
        episodes = [json.loads(line) for line in file.read_text().splitlines()]
        number = next(n for n, episode in enumerate(episodes) if episode["turns"] == 2)
        replay, _ = replayed(f"episode='later/{condition}/{number}'", "turn=2", "checkpoint=last")
        assert untold(replay.new[0].messages) == untold(episodes[number]["messages"])
        other, _ = replayed(
            f"episode='later/{condition}/{number}'", "turn=2", "sampling.temperature=0.5", "checkpoint=base"
        )
        assert other.new[0].turns == 2 and other.checked == replay.checked
    hot = (f"episode='later/horizon=2_sampled/{number}'", "turn=1", "sampling.temperature=9", "agents.tool=base")
    played = [replayed(*hot, *seed)[0].new[0].messages for seed in ([], ["seed=3"], ["seed=0"])]
    assert played[0] == played[1] != played[2], "0 is a seed, not the evaluation's, which is 3"


def test_json(run: Run, replayed: Replayed) -> None:
    replay, shown = replayed(f"episode=test_00001/{long_episode(run, 'test_00001')}", "turn=2", "json=true")
    record = json.loads(shown)
    assert record == json.loads(json.dumps(replay.record()))
    assert record["turn"] == 2 and record["agent"] == "tool" and len(record["replayed"]) == 2
    assert record["stored"]["messages"][0]["turn"] == record["new"][0]["messages"][0]["turn"] == 1


@pytest.fixture
def altered(run: Run, tmp_path: Path) -> Callable[..., Path]:
    """``altered(name, change)``: a copy of the run without weights; ``change`` changes the records of a file."""

    def copy(name: str, change: Callable[[list[Any]], object]) -> Path:
        for file in ("config.yaml", "versions.json", "metrics.jsonl", "summary.json"):
            (tmp_path / file).write_text((run.path / file).read_text())
        (tmp_path / "episodes").mkdir()
        lines = (run.path / "episodes" / f"{name}.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        change(records)
        text = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / "episodes" / f"{name}.jsonl").write_text(text)
        return tmp_path

    return copy


ALTERED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "reward": (lambda e: e["messages"][1].update(local=0.75), r"turn 1, agent plan, local: stored 0\.75, now "),
    "message": (lambda e: e["messages"][0].update(said="U U U U"), r"in turn 1, agent tool, "),
    "observation": (
        lambda e: e["messages"][1].update(saw="a wall"),
        r"turn 1, agent plan, saw: stored 'a wall', now '",
    ),
    "number": (lambda e: e["messages"][0].update(moves=99), r"turn 1, agent tool, moves: stored 99, now "),
    "unknown": (lambda e: e["messages"][0].update(gone=1), r"turn 1, agent tool, gone: stored 1, now nothing"),
    "picture": (
        lambda e: e["pictures"].__setitem__(1, ["@@"]),
        r"turn 2, the picture before the message of tool: stored\n@@\nnow\n#",
    ),
    "agent": (
        lambda e: e["messages"][0].update(agent="plan"),
        "stored are messages of plan in turn 1, but the world now asks tool",
    ),
}


@pytest.mark.parametrize("what", ALTERED)
def test_the_first_difference_is_named(run: Run, replayed: Replayed, altered: Callable[..., Path], what: str) -> None:
    number = long_episode(run, "test_00001")
    change, message = ALTERED[what]
    path = altered("test_00001", lambda records: change(records[number]))
    with pytest.raises(ReplayError, match=message):
        replayed(f"episode=test_00001/{number}", "turn=2", "checkpoint=base", path=path)


def test_what_came_after_the_fork_is_not_replayed(run: Run, replayed: Replayed, altered: Callable[..., Path]) -> None:
    number = long_episode(run, "test_00001")
    path = altered("test_00001", lambda records: records[number]["messages"][2].update(local=0.75))
    replay, _ = replayed(f"episode=test_00001/{number}", "turn=2", "checkpoint=base", path=path)
    assert replay.stored.messages[0]["local"] == 0.75


def test_a_tree_s_difference_is_named(replayed: Replayed, altered: Callable[..., Path]) -> None:
    def change(records: list[Any]) -> None:
        for candidate in records[0]["nodes"][0]["candidates"]:
            candidate["team"] = 7.0

    path = altered("train_00000", change)
    with pytest.raises(ReplayError, match=r"turn 1, agent tool, team: stored 7\.0, now "):
        replayed("episode=train_00000/0", "turn=1", "agent=plan", "checkpoint=base", path=path)


def test_a_task_that_is_not_drawn_any_more(replayed: Replayed, altered: Callable[..., Path]) -> None:
    path = altered("test_00001", lambda records: records[0].update(task_id="sokoban-other"))
    with pytest.raises(ConfigError, match=r"test_00001/sokoban-other: the world no longer draws this task"):
        replayed("episode=test_00001/sokoban-other", "turn=1", "checkpoint=base", path=path)


WRONG = {
    "turn=1": r"replay needs episode=: run=DIR episode=FILE/TASK turn=T",
    "episode=tst_00001/0": r"no file of .* has that name; did you mean test_00001\?",  # the episode before the turn
    "episode=test_00001/0": r"give either turn=T, from 1, or node=N .*: test_00001/\S+ has [123] turn",
    "episode=test_00001/0 turn=1 node=0": r"turn and node both say where the fork is",
    "episode=test_00001/0 turn=1 sample=x": r"sample must be a whole number of at least 0, got 'x'",
    "episode=test_00001/0 turn=0": r"turn must be a whole number of at least 1, got 0",
    "episode=test_00001/0 turn=9": r"turn=9: test_00001/\S+ has [123] turns?",
    "episode=test_00001/0 turn=1 agent=plam": r"agent=plam: the world has no agent 'plam'; did you mean plan\?",
    "episode=test_00001/0 turn=1 candidate=1": r"candidate: an evaluated episode has one message per prompt",
    "episode=train_00000/0 turn=1 candidate=4": r"candidate=4: the prompt of tool has 3 candidates",
    "episode=train_00000/0 node=0 agent=tool": r"node and agent both say who speaks",
    "episode=test_00001/0 turn=1 samples=0": r"samples must be a whole number of at least 1",
    "episode=test_00001/0 turn=1 agents.pan=base": r"agents\.pan: the world has no agent 'pan'",
}


def test_agents_that_speak_at_once_cannot_be_forked_apart(replayed: Replayed, tmp_path: Path) -> None:
    small = "loop.iterations=0 loop.completions=0 loop.test_tasks=2 loop.validation_tasks=1 env.horizon=1".split()
    own = Experiment.compose("couplet_specialized", [*small, f"run_dir={tmp_path / 'at_once'}"]).train()
    with pytest.raises(
        ConfigError, match=r"agent=second: first, second speak at once in turn 1, and a fork is where all"
    ):
        replayed("episode=test_00000/0", "turn=1", "agent=second", "checkpoint=base", path=own.path)


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_named(replayed: Replayed, words: str) -> None:
    with pytest.raises((ConfigError, EvaluationError), match=WRONG[words]):
        replayed(*words.split())

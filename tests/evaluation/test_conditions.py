"""Conditions: worlds and names, and what is refused before anything is played."""

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.grid.plan_path import PlanPath
from troupe.errors import ConfigError
from troupe.evaluation.conditions import (
    CUT,
    Condition,
    Played,
    condition_name,
    play_conditions,
    sampling_at,
    world_variants,
)
from troupe.evaluation.episodes import PolicyActor
from troupe.evaluation.request import EvalRequest
from troupe.experience import Sampling
from troupe.rollout.engines.requests import derive
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.scripted import ScriptedEngine


def test_worlds_are_every_combination_of_listed_values() -> None:
    config = {"_target_": "x", "size": 6, "horizon": 4, "walls": 0.2}
    variants = list(world_variants({"size": [6, 8], "horizon": [2, 4]}, config))
    assert [variant for _, variant in variants] == [
        {**config, "size": size, "horizon": horizon} for size in (6, 8) for horizon in (2, 4)
    ]
    assert variants[2][0] == ["size=8", "horizon=2"]
    assert list(world_variants({}, config)) == [([], config)]
    for changes, message in (
        ({"sise": 3}, r"world\.sise is an unknown key\. Known: horizon, size"),
        ({"_target_": "y"}, r"world\._target_"),
        ({"size": []}, r"world\.size=\[\] names no value"),
    ):
        with pytest.raises(ConfigError, match=message):
            list(world_variants(changes, config))


def test_a_key_of_a_section_changes_that_key_alone() -> None:
    sandbox = {"_target_": "box", "workers": 2, "imports": []}
    config = {"_target_": "x", "size": 6, "sandbox": sandbox, "data": None}
    (labels, one), (_, other) = world_variants({"sandbox": {"workers": [1, 3]}, "size": 8}, config)
    assert labels == ["sandbox.workers=1", "size=8"]
    assert one == {**config, "size": 8, "sandbox": {**sandbox, "workers": 1}}
    assert other["sandbox"] == {**sandbox, "workers": 3} and config["sandbox"] == sandbox and sandbox["workers"] == 2
    ((_, whole),) = world_variants({"sandbox": {"_target_": "bag"}}, config)
    assert whole["sandbox"] == {"_target_": "bag"}
    for changes, message in (
        (
            {"sandbox": {"worker": 1}},
            r"world\.sandbox\.worker is an unknown key\. Known: sandbox\.imports, sandbox\.wo",
        ),
        ({"size": {"x": 1}}, r"world\.size is 6 in this world, and has no key x"),
        ({"data": {"path": "f"}}, r"world\.data is None in this world, and has no key path"),
    ):
        with pytest.raises(ConfigError, match=message):
            list(world_variants(changes, config))


def test_names_have_the_world_and_the_sampling() -> None:
    assert condition_name([], "own") == "sampled"
    assert condition_name(["size=8", "horizon=2"], 0) == "size=8,horizon=2,greedy"
    assert condition_name([], 0.5) == "temperature=0.5"
    own = Sampling(temperature=0.7, max_tokens=9)
    assert sampling_at("own", own) is own
    assert sampling_at(0, own) == Sampling(temperature=0.0, max_tokens=9)


def request(samples: int) -> EvalRequest:
    return EvalRequest(checkpoint="base", split="test", tasks=3, samples=samples, temperature=("own",), seed=5)


async def test_samples_are_played_with_seeds_of_their_own(words: PreTrainedTokenizerFast) -> None:
    world = PlanPath()
    engine = ScriptedEngine(lambda prompt, row, seed: "UDLR"[seed % 4], words)
    actor = PolicyActor(PolicyClient("p", engine, words, 512, Sampling(max_tokens=4)))
    condition = Condition("sampled", {}, world, world.tasks("test", 3, 0), {}, "own", 2)
    played = Played()
    (result,) = await play_conditions(request(2), [condition], [dict.fromkeys(world.agents, actor)], played)
    assert [[episode.task_id for episode in sample] for sample in result.samples] == [
        [task.task_id for task in condition.tasks]
    ] * 2
    assert (result.summary["samples"], result.summary["tasks"], played.episodes) == (2, 3, condition.episodes)
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds)
    assert derive(derive(5, "eval", "test"), condition.tasks[0].task_id, 0, "tool") in seeds
    assert derive(derive(5, "eval", "test", 1), condition.tasks[0].task_id, 0, "tool") in seeds


async def test_messages_that_are_cut_at_the_most_tokens_are_counted(words: PreTrainedTokenizerFast) -> None:
    world = PlanPath(horizon=1)
    actors = {
        agent: PolicyActor(PolicyClient("p", engine, words, 512, Sampling(max_tokens=most)))
        for agent, most in zip(world.agents, (2, 9), strict=True)
        for engine in [ScriptedEngine(lambda prompt, row, seed: "U R", words)]
    }
    condition = Condition("sampled", {}, world, world.tasks("test", 3, 0), {}, "own", 1)
    (result,) = await play_conditions(request(1), [condition], [actors], Played())
    assert {key: value for key, value in result.summary.items() if "cut" in key} == {f"{world.agents[0]}/{CUT}": 1.0}


async def test_a_world_that_a_policy_cannot_read_is_refused_before_play(words: PreTrainedTokenizerFast) -> None:
    world = PlanPath(size=12)
    engine = ScriptedEngine(lambda prompt, row, seed: "U", words)
    actor = PolicyActor(PolicyClient("p", engine, words, 512, Sampling(max_tokens=4)))
    condition = Condition("size=12,sampled", {}, world, world.tasks("test", 3, 0), {}, "own", 1)
    with pytest.raises(ConfigError, match=r"world \(size=12,sampled\): agent 'tool', task plan_path-"):
        await play_conditions(request(1), [condition], [dict.fromkeys(world.agents, actor)], Played())
    assert not engine.requests

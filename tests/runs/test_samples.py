"""Messages of an episode, as lines."""

import asyncio

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Sampling, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.forest import ForestSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.replay import ReplaySampler
from troupe.rollout.samplers.sampler import Sampler
from troupe.rollout.samplers.tree import TreeSampler
from troupe.rollout.scripted import ScriptedEngine
from troupe.runs.samples import SampleMessage, one_line, sampled_messages


@pytest.mark.parametrize(
    "sampler", [TreeSampler(k=2), ChainSampler(k=2), ReplaySampler(k=2), JointSampler(k=2), ForestSampler()]
)
def test_one_path_of_an_episode(sampler: Sampler, words: PreTrainedTokenizerFast, board: Task) -> None:
    client = PolicyClient("p", ScriptedEngine(lambda prompt, row, seed: "R", words), words, 512, Sampling(max_tokens=9))
    clients = {"tool": client, "plan": client}
    ((episode, *_),) = asyncio.run(sampler.collect(Sokoban(horizon=3), [board], clients, 0))
    messages = sampled_messages(episode)
    order = [(message.turn, message.agent) for message in messages]
    assert order == [(turn, agent) for turn in range(2) for agent in ("tool", "plan")]  # R R solves it
    assert {message.said for message in messages} == {"R"} and messages[-1].reward >= 1


def test_agents_that_act_at_once(board: Task) -> None:
    """Of two joint actions, the one that ended the episode."""
    nodes = [
        Node(
            "board",
            agent,
            0,
            (1,),
            [Candidate(Completion((1,), (0.0,), text, "stop", "p", 0), 0, 0, 0) for text in "ab"],
        )
        for agent in ("first", "second")
    ]
    tried = JointAction({"first": (0, 0), "second": (1, 0)})
    ended = JointAction({"first": (0, 1), "second": (1, 1)}, outcome=Outcome(True, 1, 0.0))
    messages = sampled_messages(Episode(board, nodes, [tried, ended]))
    assert [(message.agent, message.said) for message in messages] == [("first", "b"), ("second", "b")]


def test_a_lost_episode_has_no_messages(board: Task) -> None:
    assert sampled_messages(Episode(board, [], [], failure="the judge is gone")) == []


def test_a_message_is_one_harmless_line() -> None:
    said = "first\nsecond \x1b[2J\x07\ud800 [red]é日"
    message = SampleMessage(1, "tool", "", said, 0.256)
    assert message.line() == "turn 1  tool: first second [2J [red]é日  (reward 0.26)"
    assert message.line(8) == "turn 1  tool: first s…  (reward 0.26)"
    assert one_line("12345678", 8) == "12345678"

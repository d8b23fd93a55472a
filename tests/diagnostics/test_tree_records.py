"""A tree as a line: whole, readable, and what its tokens and baselines are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.counterfactual import Counterfactual
from troupe.algorithms.credit.magrpo import Magrpo
from troupe.algorithms.credit.reinforce_pp import ReinforcePP
from troupe.algorithms.credit.role_baselines import RoleBaselines
from troupe.diagnostics.pictures import pictures
from troupe.diagnostics.tree_records import TrainingTree, baselines, prompt_text, token_texts, tree_record
from troupe.enumeration.game import Game
from troupe.experience import Node
from troupe.models.bases.base_models import base_path
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.replay import ReplaySampler
from troupe.rollout.samplers.tree import TreeSampler
from troupe.runs.trees import TREE_FORMAT, tree_problem


class Plain(Game):
    """The game, with a prompt that the base model's words can write."""

    def observe(self, agent: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": agent}]


Play = Callable[..., Any]


async def test_a_whole_record(play: Play, words: PreTrainedTokenizerFast) -> None:
    (episode,) = await play(lambda prompt, row, seed: ("no", "yes please")[row % 2], Plain(), TreeSampler(k=2), 1)
    AtGrpo()([episode])
    said = episode.nodes[0].candidates[0].completion
    versions = [said.version] + [said.version + 1] * (len(said.token_ids) - 1)
    episode.nodes[0].candidates[0].completion = replace(said, versions=tuple(versions), waited=0.125)
    scores = {c: tuple(v - 0.5 for v in c.completion.logprobs) for _, c in episode.candidates()}
    tree = TrainingTree(
        episode, True, await pictures(Game(), episode.task, episode), scores, scores, baselines(AtGrpo(), [episode])
    )
    record = tree_record(tree, 5, {"tool": "p", "plan": "p"}, {"p": words})
    assert tree_problem(record) == ""
    assert (record["tree_format"], record["iteration"], record["watched"]) == (TREE_FORMAT, 5, True)
    assert [node["depth"] for node in record["nodes"]] == list(range(len(episode.nodes)))
    for node, kept in zip(episode.nodes, record["nodes"], strict=True):
        assert kept["prompt"] == words.decode(node.prompt_ids)
        assert node.seconds is not None and kept["seconds"] == round(node.seconds, 4)
        for candidate, line in zip(node.candidates, kept["candidates"], strict=True):
            assert line["token_ids"] == list(candidate.completion.token_ids)
            assert line["logprobs"] == pytest.approx(candidate.completion.logprobs, abs=1e-6)
            assert line["learner_logprobs"] == pytest.approx([v - 0.5 for v in line["logprobs"]], abs=2e-6)
            mean = sum(each.reward for each in node.candidates) / 2
            assert line["baseline"] == pytest.approx(mean)
            assert line["value"] == line["reward"]
            assert (line["value"] - line["baseline"]) / line["scale"] == pytest.approx(candidate.advantage)
            assert line["advantage"] == candidate.advantage and line["continued"] == candidate.continued
            assert line["next"]["done"] in (True, False)
    assert [node.get("waited") for node in record["nodes"]][:2] == [0.125, None]
    episode.nodes[0].seconds = None  # of a program that was not timed
    episode.nodes[0].session = "lead/one"
    first, second = tree_record(tree, 5, {"tool": "p", "plan": "p"}, {"p": words})["nodes"][:2]
    assert "seconds" not in first and first["session"] == "lead/one" and "session" not in second
    first, second = record["nodes"][0]["candidates"]
    assert (first["version"], first["versions"]) == (said.version, versions) and "versions" not in second
    assert record["edges"][0] == {"members": {"tool": [0, record["edges"][0]["members"]["tool"][1]]}, "child": 1}
    assert record["edges"][-1]["outcome"]["team_return"] == episode.outcomes[-1].team_return


async def test_baselines_of_rules_that_compare_with_no_mean(play: Play) -> None:
    def said(prompt: str, row: int, seed: int) -> str:
        return ("no", "yes please")[row % 2]

    (replayed,) = await play(said, Plain(), ReplaySampler(k=2, removal="yes please"), 1)
    removed = {c: node.removed for node, c in replayed.candidates()}
    assert removed and any(removed.values())
    compared = baselines(Counterfactual(removal="yes please"), [replayed])
    assert {identity: each.baseline for identity, each in compared.items()} == removed
    (chain,) = await play(said, Plain(), ChainSampler(k=1), 1)
    for rule in (RoleBaselines(), ReinforcePP()):
        rule([chain])
        assert baselines(rule, [chain]) == {}, "neither a running mean nor nothing is the mean of this group"


@pytest.mark.parametrize("normalise", [True, False])
async def test_a_return_is_kept_with_what_makes_it_an_advantage(play: Play, normalise: bool) -> None:
    """MAGRPO compares returns, not rewards, and weighs a later turn less."""
    said = ("no", "yes please")
    (episode,) = await play(lambda prompt, row, seed: said[row % 2], Plain(at_once=True), JointSampler(k=2), 1)
    rule = Magrpo(normalise=normalise)
    rule([episode])
    record = tree_record(TrainingTree(episode, baselines=baselines(rule, [episode])), 0, {"tool": "p", "plan": "p"}, {})
    lines = [line for node in record["nodes"] for line in node["candidates"]]
    assert any(line["advantage"] for line in lines) and any(line["value"] != line["reward"] for line in lines)
    for line in lines:
        assert (line["value"] - line["baseline"]) / line["scale"] == pytest.approx(line["advantage"], abs=1e-9)


@pytest.mark.parametrize("base", ["laptop", "laptop_math", "laptop_writing"])
@pytest.mark.parametrize("text", ["box 3,1 U 2,1", "  two  blanks\n", "naïve 日本語 🙂🙂 end"])
def test_the_texts_of_tokens_are_the_text(base: str, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base_path(base))
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "".join(token_texts(tokenizer, ids)) == tokenizer.decode(ids)
    assert len(token_texts(tokenizer, ids)) == len(ids)


def test_a_servers_prompt_is_its_messages() -> None:
    codec = ChatCodec()
    ids = tuple(
        codec.apply_chat_template([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}])
    )
    assert prompt_text(codec, Node("t", "a", 0, ids, [])) == "[system]\nbe brief\n\n[user]\nhi"
    assert token_texts(codec, (1, 2)) == []
    assert prompt_text(None, Node("t", "a", 0, (), [])) == ""

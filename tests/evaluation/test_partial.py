"""Samples of an evaluation under way: kept whole, read back as they were, played anew where their file is damaged."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.grid.plan_path import PlanPath
from troupe.evaluation.conditions import Condition, ConditionResult, Played, play_conditions
from troupe.evaluation.episodes import EpisodeResult, PolicyActor
from troupe.evaluation.partial import NOTHING_KEPT, PartialEvaluation, PlayedSample
from troupe.evaluation.request import EvalRequest
from troupe.experience import Sampling
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.scripted import ScriptedEngine

SAMPLE = PlayedSample(
    [EpisodeResult("a", True, 2, [{"turn": 0, "agent": "solo", "said": "U"}], 3, 4, 2, [["#.", ".#"]]),
     EpisodeResult("b", False, 1, lost="engine", failure="gone")],
    1.5,
    {"solo": 3},
    {"solo": 1},
)  # fmt: skip


def test_a_sample_is_read_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partial = PartialEvaluation(tmp_path / "evaluations" / ".abc.partial")
    assert partial.read(0, 0, "ab") is None and partial.count == 0
    partial.write(2, 10, SAMPLE)
    assert partial.read(2, 10, "ab") == SAMPLE and partial.read(2, 1, "ab") is None and partial.count == 1
    assert partial.read(2, 10, "ba") is None and "it has other tasks" in caplog.text
    partial.remove()
    assert partial.read(2, 10, "ab") is None and not (tmp_path / "evaluations" / ".abc.partial").exists()


def test_without_a_folder_nothing_is_kept() -> None:
    NOTHING_KEPT.write(0, 0, SAMPLE)
    NOTHING_KEPT.remove()
    assert NOTHING_KEPT.read(0, 0, "ab") is None and NOTHING_KEPT.count == 0


@pytest.mark.parametrize("text", ["", "{", "[]\n", '{"seconds": null, "messages": {}, "cut": {}}\n', "\x00"])
def test_a_damaged_file_is_said_and_played_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    (tmp_path / "000_00000.jsonl").write_text(text)
    assert PartialEvaluation(tmp_path).read(0, 0, "ab") is None
    assert "000_00000.jsonl is damaged" in caplog.text


async def test_an_evaluation_goes_on_after_its_last_whole_sample(
    words: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    world, partial = PlanPath(), PartialEvaluation(tmp_path / ".x.partial")
    request = EvalRequest(checkpoint="base", split="test", tasks=3, samples=3, temperature=("own",), seed=5)

    class Ends(Exception):
        pass

    async def played_until(messages: int, kept: PartialEvaluation) -> tuple[list[ConditionResult], Played, int]:
        def say(prompt: Any, row: int, seed: int) -> str:
            if len(engine.requests) > messages:
                raise Ends
            return "UDLR"[seed % 4]

        engine = ScriptedEngine(say, words)
        actor = PolicyActor(PolicyClient("p", engine, words, 512, Sampling(max_tokens=4)))
        condition = Condition("sampled", {}, world, world.tasks("test", 3, 0), {}, "own", 3)
        counts = Played()
        team = dict.fromkeys(world.agents, actor)
        results = await play_conditions(request, [condition], [team], counts, partial=kept)
        return results, counts, len(engine.requests)

    [straight], counts, messages = await played_until(10**6, NOTHING_KEPT)
    assert counts.kept == 0
    with pytest.raises(Ends):
        await played_until(messages - 2, partial)
    assert partial.count == 2
    [resumed], again, new = await played_until(10**6, partial)
    assert (again.kept, again.episodes, again.messages) == (6, 9, counts.messages) and 0 < new < messages
    assert json.dumps([[asdict(e) for e in s] for s in resumed.samples]) == json.dumps(
        [[asdict(e) for e in s] for s in straight.samples]
    )
    assert resumed.summary == straight.summary

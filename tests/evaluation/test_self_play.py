"""Self-play: whose weights an opponent has, that a continued run meets the same ones, and exact strategies."""

import asyncio
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hydra import compose
from omegaconf import DictConfig, OmegaConf

from troupe.cli import train
from troupe.envs.kuhn import ACTIONS, PLACES, SEATS, Kuhn, prompt
from troupe.errors import ConfigError
from troupe.evaluation.assignment import assign
from troupe.evaluation.self_play import PastSettings, strategy_of
from troupe.experience import Episode
from troupe.loop import TrainLoop
from troupe.models.bases.loading import checkpoint_weights, load_model
from troupe.reports.evaluations import pair_tables
from troupe.reports.report import write_report
from troupe.runs.run import RunReader
from troupe.setup.composition import configurations
from troupe.setup.evaluation import other_teams, read_request, trained_team

from ..asked import evaluated

Composed = Callable[..., DictConfig]
TINY = ["diagnostics=off", "algorithm.sampler.k=2", "loop.eval_every=100", "loop.checkpoint.every=100"]
POOL = "policies.opponent.past.newest=0"


def loop_of(composed: Composed, run_dir: Path, *words: str, regime: str = "shared") -> TrainLoop:
    return train.build(composed(f"experiment=kuhn_{regime}", f"run_dir={run_dir}", *TINY, *words))


def rows(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


# ---- who plays whom -------------------------------------------------------------------------------------------------


def drawn(iteration: int = 23, **settings: Any) -> Counter[int]:
    rng, past = Random(0), PastSettings("shared", every=10, **settings)
    return Counter(past.draw(iteration, rng) for _ in range(4000))


def test_the_newest_alone() -> None:
    assert drawn(newest=1.0) == {23: 4000}


def test_all_of_the_pool_are_equally_probable() -> None:
    counts = drawn(newest=0.0)
    assert set(counts) == {0, 10, 20} and all(abs(count / 4000 - 1 / 3) < 0.03 for count in counts.values())


def test_older_ones_are_less_probable() -> None:
    counts = drawn(newest=0.5, half_life=10)
    expected = {23: 1 / 2, 20: 2 / 7, 10: 1 / 7, 0: 1 / 14}
    assert set(counts) == set(expected)
    assert all(abs(counts[each] / 4000 - share) < 0.03 for each, share in expected.items())


def test_before_the_first_iteration_there_is_one() -> None:
    assert set(drawn(0, newest=0.0)) == {0}


@pytest.mark.parametrize("newest", [0.0, 1.0])
async def test_one_opponent_per_iteration_and_it_is_not_learnt_from(
    composed: Composed, tmp_path: Path, newest: float
) -> None:
    """All samples of an iteration meet the weights that its row names, and the router hands out the player's alone."""
    loop = loop_of(
        composed, tmp_path / "run", "loop.iterations=5", "policies.opponent.past.every=2", f"{POOL[:-1]}{newest}"
    )
    collect, seen = loop.collect, []

    async def watched() -> list[Episode]:
        episodes = await collect()
        said = [candidate.completion for each in episodes for _, candidate in each.candidates()]
        seen.append({each.version for each in said if each.policy == "opponent"})
        batches = loop.router.route(episodes, loop.credit.key) if loop.credit(episodes) is None else {}
        assert set(batches) == {"shared"} and {s.agent for group in batches["shared"] for s in group} == {"player"}
        held = loop.team.engines["opponent"]._decoders["opponent"].model.state_dict()  # type: ignore[attr-defined]
        (version,) = seen[-1]
        kept = loop.checkpoints.at(version) / "shared"
        if newest == 0.0:
            expected = checkpoint_weights(kept)
            assert all(torch.equal(held[name], tensor) for name, tensor in expected.items())
        return episodes

    loop.collect = watched  # type: ignore[method-assign]
    await loop.run()
    ages = [row["opponents/opponent/age"] for row in rows(tmp_path / "run")]
    assert seen == [{iteration - age} for iteration, age in enumerate(ages)]
    assert (set(ages) == {0}) == (newest == 1.0)
    assert loop.checkpoints.iterations() == [0, 2, 4, 5]  # the pool, and the last


@pytest.mark.slow
async def test_a_continued_run_meets_the_same_opponents(composed: Composed, tmp_path: Path) -> None:
    """Bit for bit, from a checkpoint between two of the pool, and with the mean of the strategies so far."""
    words = (POOL, "policies.opponent.past.every=2")
    await loop_of(composed, tmp_path / "whole", "loop.iterations=7", *words).run()
    await loop_of(composed, tmp_path / "part", "loop.iterations=3", *words).run()
    resumed = train.build(composed(f"resume={tmp_path / 'part'}", "loop.iterations=7"))
    await resumed.run()
    whole, part = rows(tmp_path / "whole"), rows(tmp_path / "part")
    for key in (
        "opponents/opponent/age",
        "game/exploitability",
        "game/exploitability_average",
        "rollout/player/reward",
    ):
        assert [row[key] for row in whole] == [row[key] for row in part]
    assert len({row["opponents/opponent/age"] for row in whole}) > 2
    folders = [tmp_path / name / "checkpoints/last/shared/model.safetensors" for name in ("whole", "part")]
    assert folders[0].read_bytes() == folders[1].read_bytes()


@pytest.mark.parametrize("regime", ["specialized", "lora"])
@pytest.mark.slow
async def test_policies_of_other_regimes(composed: Composed, tmp_path: Path, regime: str) -> None:
    """An adapter's past are adapters on the same base."""
    loop = loop_of(
        composed, tmp_path / "run", "loop.iterations=3", POOL, "policies.opponent.past.every=1", regime=regime
    )
    await loop.run()
    assert loop.router.team == {"player": "player", "opponent": "opponent"}
    assert [row["game/exploitability"] for row in rows(tmp_path / "run")]


async def test_an_evaluation_plays_any_two_of_the_pool(composed: Composed, tmp_path: Path) -> None:
    path = tmp_path / "run"
    await loop_of(composed, path, "loop.iterations=3", "policies.opponent.past.every=1").run()
    team = trained_team("run", str(path), None)
    with configurations():
        keys = OmegaConf.to_container(
            compose(
                "eval",
                overrides=[f"run={path}", "checkpoint=iteration_00002", f"+agents.opponent={path}@iteration_00001"],
            )
        )
    request = read_request(keys, team)  # type: ignore[arg-type]
    played = assign(request, ("player", "opponent"), team, other_teams(request, team))
    folders = {agent: Path(source.weights) for agent, source in played.items()}  # type: ignore[union-attr]
    assert folders == {
        "player": path / "checkpoints/iteration_00002/shared",
        "opponent": path / "checkpoints/iteration_00001/shared",
    }
    for wrong in ("iteration_2", "iteration_00009", "newest", "../last"):
        with pytest.raises(ConfigError, match=re.escape(wrong)):
            again = read_request({**keys, "agents": {"opponent": f"{path}@{wrong}"}}, team)  # type: ignore[dict-item]
            assign(again, ("player", "opponent"), team, other_teams(again, team))


def test_the_report_shows_who_of_the_pool_wins_against_whom(composed: Composed, tmp_path: Path) -> None:
    """The mean return of each pair and seat; a team against itself is an evaluation of its own."""
    path, other = tmp_path / "run", tmp_path / "copy"
    asyncio.run(loop_of(composed, path, "loop.iterations=3", "policies.opponent.past.every=1").run())
    shutil.copytree(path, other)
    pool, means = ("iteration_00000", "iteration_00003"), {}
    for own in pool:
        for theirs in (*(f"{path}@{each}" for each in pool if each != own), f"{other}@iteration_00001", None):
            words = [] if theirs is None else [f"agents.opponent={theirs}"]
            played = evaluated(path, f"checkpoint={own}", "temperature=0", *words)
            episodes = [json.loads(line) for line in (played.path / "episodes/greedy.jsonl").read_text().splitlines()]
            assert len(episodes) == 12
            sums = {
                seat: sum(e["messages"][-1]["team"] for e in episodes if e["task_id"].endswith(seat)) for seat in SEATS
            }
            assert theirs is not None or sums["first"] == -sums["second"]  # zero sum, and all deals in both seats
            means[own, theirs] = [
                f"{sum(sums.values()) / 12:+.3f}",
                *(f"{seat} {sums[seat] / 6:+.3f}" for seat in SEATS),
            ]
    (table,) = pair_tables(RunReader(path))
    assert table.title == "Who plays whom: opponent, greedy, test, tasks 12, seed 0"
    assert list(table.heads) == ["", "after iteration 0", "after iteration 3", f"{other}@iteration_00001"]
    for own, (name, *cells) in zip(pool, table.lines, strict=True):
        assert name == f"after iteration {int(own[-1])}"
        opponents = [None if each == own else f"{path}@{each}" for each in pool]
        expected = [means[own, each] for each in (*opponents, f"{other}@iteration_00001")]
        assert cells == [f"{whole} ({', '.join(seats)})" for whole, *seats in expected]
    assert "Who plays whom" in write_report(path).read_text()


# ---- exploitability -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 2])
async def test_the_strategy_is_that_of_the_model(composed: Composed, tmp_path: Path, tokens: int) -> None:
    loop = loop_of(composed, tmp_path / "run", f"policies.shared.sampling.train.max_tokens={tokens}")
    try:
        client = loop.team.training["player"]
        strategy = await strategy_of(Kuhn(), "player", client, loop.team.policies["shared"])
    finally:
        await loop.team.close()
    model, tokenizer = load_model("laptop_kuhn"), client.tokenizer
    end = tokenizer.eos_token_id  # type: ignore[union-attr]
    for place, row in zip(PLACES, strategy, strict=True):
        ids = list(client.encode("player", "", prompt(*place)))
        for action, probability in zip(ACTIONS, row, strict=True):
            (token,) = tokenizer(action).input_ids  # type: ignore[operator]
            with torch.no_grad():
                logits = model(torch.tensor([[*ids, token]])).logits[0, -2:].double().softmax(-1)
            ended = logits[1, end] if tokens > 1 else 1.0  # of one token, there is no room for the end
            assert probability == pytest.approx(float(logits[0, token] * ended), rel=1e-4)
    assert all(0.9 < sum(row) <= 1 + 1e-6 for row in strategy)


# ---- what is refused ------------------------------------------------------------------------------------------------

PAST = "policies.opponent.past"
WRONG = [
    *((f"{PAST}.newest={value}", f"{PAST}.newest") for value in ("-0.1", "1.1", "null", "abc", "true", ".nan", "[0]")),
    *((f"{PAST}.every={value}", f"{PAST}.every") for value in ("0", "-5", "1.5", "null", "abc", "true", "[5]", "{}")),
    *((f"{PAST}.half_life={value}", f"{PAST}.half_life") for value in ("0", "-1", "2.5", "abc", "true", "[1]")),
    *((f"{PAST}.of={value}", f"{PAST}.of") for value in ("null", "opponent", "nobody", "share", "3", "[shared]")),
    (f"+{PAST}.choose=uniform", f"{PAST}.choose"),
    ("policies.opponent.base=laptop", "policies.opponent.base"),
    ("policies.opponent.tuning=frozen", "policies.opponent.past"),
    ("policies.opponent.tuning=newest", "policies.opponent.tuning"),
    ("team.opponent=shared", "policy 'opponent' is used by no agent"),
    ("algorithm=at_grpo", "algorithm.sampler"),
    ("algorithm=magrpo", "algorithm.sampler"),
    ("strategy=ddp", "policies.opponent.tuning=past"),
    ("loop.tasks_per_iteration=13", "loop.tasks_per_iteration"),
]


@pytest.mark.parametrize(("word", "named"), WRONG)
def test_thirty_hostile_settings(composed: Composed, tmp_path: Path, word: str, named: str) -> None:
    assert len(WRONG) >= 30
    with pytest.raises(ValueError, match=re.escape(named).replace("past\\.", r"past(\.|: )")):
        loop_of(composed, tmp_path / "run", word)
    assert not (tmp_path / "run").exists()


def test_an_opponent_may_be_fixed_or_scripted(composed: Composed, tmp_path: Path) -> None:
    """A checkpoint of another run, or the demonstrator: no weights of the run's own."""
    fixed = ["policies.opponent.tuning=frozen", "policies.opponent.past=null"]
    scripted = [f"policies.opponent.{word}" for word in ("tuning=scripted", "past=null", "base=null")]
    scripted += ["+policies.opponent.skill=novice"]
    for number, words in enumerate((fixed, scripted)):
        loop = loop_of(composed, tmp_path / str(number), *words)
        assert not loop.self_play.past
        asyncio.run(loop.team.close())


def test_a_policy_that_learns_cannot_play_against_the_team(composed: Composed, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"team\.opponent=opponent: agent 'opponent' plays against the team"):
        own = [f"policies.opponent.{key}=${{policies.player.{key}}}" for key in ("tuning", "optimizer", "scheduler")]
        loop_of(composed, tmp_path / "run", *own, "policies.opponent.past=null", regime="specialized")

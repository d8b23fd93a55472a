"""How many attempts the base needs for what a trained team reaches in one, by attempts alone.

`python bench/base_attempts.py math delegation signalling math_team` begins with the 256 attempts of every held-out task
in `docs/results/evaluations/NAME.json`.  Tasks that none of them solved are tried on, with other seeds, until the first
success or 4,096 attempts in all.  The share of tasks whose first success came within k attempts estimates pass@k
without a model of any kind.  `docs/results/base_attempts.jsonl` keeps, of every task that 256 attempts left, which
attempt was the first that solved it; a team that it has goes on from there where `--most` is larger.

`python bench/base_attempts.py table` prints the table of `docs/results/base_reach.md`.  Intervals over tasks: Wilson's
for a share; for the k at which the base overtakes, 2,000 resamples of the tasks, base and trained team together.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from troupe.evaluation.conditions import Condition
from troupe.evaluation.episodes import evaluate
from troupe.evaluation.statistics import wilson
from troupe.experience import Task
from troupe.rollout.engines.requests import derive
from troupe.setup.evaluation import build_conditions, read_request, read_team
from troupe.setup.evaluation_actors import ActorFactory

RESULTS = Path(__file__).parents[1] / "docs/results"
FILE = RESULTS / "base_attempts.jsonl"
KS = (256, 512, 1024, 2048, 4096)
AT_ONCE = 256
"""Episodes that are decoded together."""


def stored() -> dict[str, dict[str, Any]]:
    """The lines of :data:`FILE` by team."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {line["team"]: line for line in map(json.loads, lines)}


def evaluation(name: str) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((RESULTS / f"evaluations/{name}.json").read_text())
    return kept


async def first_successes(
    condition: Condition, engine: Mapping[str, Any], first: dict[str, int | None], begin: int, most: int
) -> None:
    """Play the tasks without a success on, from ``begin`` attempts of each to ``most``; fills ``first``."""
    tasks: dict[str, Task] = {task.task_id: task for task in condition.tasks if first.get(task.task_id, 0) is None}
    factory = ActorFactory(engine)
    try:
        (actors,) = factory.actors([condition])
        await condition.world.open()
        while tasks and begin < most:
            rounds = range(begin, min(most, begin + max(1, AT_ONCE // len(tasks))))
            left, seeds = list(tasks.values()), [derive(0, "attempts", number) for number in rounds]
            played = await asyncio.gather(*(evaluate(condition.world, left, actors, seed) for seed in seeds))
            for number, results in zip(rounds, played, strict=True):
                for result in results:
                    assert result.lost is None, result.failure
                    if result.success and first[result.task_id] is None:
                        first[result.task_id] = number + 1
            begin = rounds.stop
            tasks = {task_id: task for task_id, task in tasks.items() if first[task_id] is None}
            print(f"{begin:,} attempts: {len(tasks)} tasks are not solved", flush=True)
    finally:
        await condition.world.close()
        await factory.close()


def play(name: str, most: int) -> dict[str, Any]:
    """The line of the team ``name``."""
    kept, line = evaluation(name), stored().get(name)
    overrides = [f"exp={kept['experiment']}", "temperature=1"]
    keys: Any = OmegaConf.to_container(compose("eval", overrides=overrides))
    team = read_team({**keys, "overrides": kept["overrides"]})
    (condition,) = build_conditions(read_request({**keys, "tasks": len(kept["solved"])}, team), team)
    ids = sorted(task.task_id for task in condition.tasks)  # the order of the counts
    if hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16] != kept["tasks"]:
        raise SystemExit(f"{name}: its held-out tasks are others now than in its evaluation")
    first: dict[str, int | None]
    if line is None:
        first = {task_id: None for task_id, wins in zip(ids, kept["solved"], strict=True) if not wins}
        begin = kept["episodes"]
    else:
        first, begin = line["first"], line["most"]
    asyncio.run(first_successes(condition, team.config["engine"], first, begin, most))
    return {"team": name, "experiment": kept["experiment"], "tasks": len(ids), "most": max(begin, most), "first": first}


def attempts(line: Mapping[str, Any]) -> np.ndarray:
    """By task of ``line``, the attempt that solved it; inf where none did, and where 256 did not have to be told apart,
    the expected one given their number of successes."""
    kept = evaluation(line["team"])
    later = iter(line["first"].values())  # in the order of the ids, as the counts are
    values = []
    for wins in kept["solved"]:
        if wins:
            values.append((kept["episodes"] + 1) / (wins + 1))
        else:
            found = next(later)
            values.append(math.inf if found is None else float(found))
    return np.array(values)


def overtakes(solved_at: np.ndarray, trained: float, most: int) -> float:
    """The least number of attempts within which a share ``trained`` of the tasks is solved; inf beyond ``most``."""
    needed = math.ceil(trained * len(solved_at) - 1e-9)
    value = float(np.sort(solved_at)[needed - 1])
    return value if value <= most else math.inf


def row(line: Mapping[str, Any]) -> list[str]:
    solved_at, most = attempts(line), line["most"]
    files = sorted((RESULTS / "evaluations").glob(f"{line['team']}_trained_*.json"))
    trained = np.mean([np.array(kept["solved"]) / kept["episodes"] for kept in map(_read, files)], axis=0)
    point = overtakes(solved_at, trained.mean(), most)
    rng, drawn = np.random.default_rng(0), []
    for _ in range(2000):
        picked = rng.integers(len(solved_at), size=len(solved_at))
        drawn.append(overtakes(solved_at[picked], trained[picked].mean(), most))
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    cells = [f"`{line['experiment']}`", f"{trained.mean():.3f} ({len(files)} seeds)"]
    for k in KS:
        wins = int((solved_at <= k).sum())
        cells.append(
            "" if k > most else "{:.3f} ({:.3f} to {:.3f})".format(wins / len(solved_at), *wilson(wins, len(solved_at)))
        )
    if math.isinf(low):
        return [*cells, f"more than {most:,}"]
    return [*cells, f"{_count(point, most)} ({_count(low, most)} to {_count(high, most)})"]


def _count(value: float, most: int) -> str:
    return f"more than {most:,}" if math.isinf(value) else f"{value:,.0f}"


def _read(file: Path) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(file.read_text())
    return kept


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    heads = ["team", "trained pass@1", *(f"base pass@{k:,}" for k in KS), "the base overtakes at k"]
    body = [heads, ["---"] * len(heads), *map(row, lines)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teams", nargs="+", help="names of evaluations of bases, or `table`")
    parser.add_argument("--most", type=int, default=4096, help="attempts of a task, the first 256 included")
    options = parser.parse_args()
    if options.teams == ["table"]:
        print(table(list(stored().values())))
        return
    with initialize_config_module("troupe.configs", version_base="1.3"):
        for name in options.teams:
            print(name, flush=True)
            lines = {**stored(), name: play(name, options.most)}
            FILE.write_text("".join(json.dumps(line) + "\n" for line in lines.values()))


if __name__ == "__main__":
    main()

"""Do planted pathologies raise their alarm?  `python bench/planted.py EXPERIMENT ... --seeds 3 4 5 > FILE`

Whole trainings at laptop scale, short ones (iterations of 16 tasks), each with one fault at full strength or at half:

- `lazy_agent`: whatever an agent says, the world reads nothing; from the start, from the middle of the run on;
- `nothing_learnt`: the reward is constant; of all agents, of one;
- `entropy_collapse`: the temperature is halved after every iteration, after every second one, down to a 64th;
- `mismatch`: the engine samples with the weights of four updates ago, of two;
- `role_dominance`: one role of a shared policy has ten times the tokens of the others together, five times, where every
  token counts the same.

A run's line has whether the fault's alarm was raised, for whom, by which threshold, since which iteration, and which
others were.  A fault has consequences, which may raise further alarms: where nothing that an agent says is read, its
groups have no difference, and there is nothing to learn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from troupe import Experiment
from troupe.envs.base import StepResult
from troupe.experience import Sample
from troupe.loop import TrainLoop
from troupe.setup.assembly import build

ITERATIONS, MIDDLE = 18, 9
SHORT = (
    *("loop.tasks_per_iteration=16", f"loop.iterations={ITERATIONS}", "loop.completions=0", "loop.test_tasks=1"),
    "diagnostics.every=3",
)
SLOW = "scale.lr=1e-6"  # for faults whose alarm a team that learns would hide
Restore = Callable[[], None]


def on_steps(loop: TrainLoop, change: Callable[[Any, Mapping[str, str]], Any]) -> Restore:
    """Let ``change(step, actions)`` take the place of the world's steps."""
    kind: Any = type(loop.world)
    step = kind.step

    async def changed(world: Any, actions: Mapping[str, str]) -> StepResult:
        result: StepResult = await change(lambda given: step(world, given), actions)
        return result

    kind.step = changed
    return lambda: setattr(kind, "step", step)


def lazy_agent(loop: TrainLoop, strength: float) -> Restore:
    agent, start = loop.world.agents[0], 0 if strength == 1 else MIDDLE

    async def silent(step: Any, actions: Mapping[str, str]) -> Any:
        lazy = agent in actions and loop.progress.iteration >= start
        return await step({**actions, agent: ""} if lazy else actions)

    return on_steps(loop, silent)


def nothing_learnt(loop: TrainLoop, strength: float) -> Restore:
    agents = set(loop.world.agents if strength == 1 else loop.world.agents[:1])

    async def constant(step: Any, actions: Mapping[str, str]) -> Any:
        result = await step(actions)
        nothing = {"team": 0.0, "local": dict.fromkeys(result.local, 0.0)}
        return replace(result, **nothing) if agents >= set(actions) else result

    return on_steps(loop, constant)


def entropy_collapse(loop: TrainLoop, strength: float) -> Restore:
    """Of engine and learner alike."""
    team: Any = loop.team
    run_iteration = loop.run_iteration

    async def colder() -> dict[str, Any]:
        temperature = 2.0 ** -min(int(max(0, loop.progress.iteration - 3) * strength), 6)
        for agent, client in team.training.items():
            team.training[agent] = replace(client, sampling=replace(client.sampling, temperature=temperature))
        for name, policy in team.policies.items():
            configs = policy.pool.module.module.policies
            configs[name] = replace(configs[name], temperature=temperature)
        return await run_iteration()

    loop.run_iteration = colder
    return lambda: None


def mismatch(loop: TrainLoop, strength: float) -> Restore:
    team: Any = loop.team
    load, lag = team._load, round(4 * strength)
    former: dict[str, list[dict[str, Any]]] = {}

    async def stale(name: str, weights: Mapping[str, Any]) -> Mapping[str, float]:
        kept = former.setdefault(name, [])
        kept.append({key: value.clone() for key, value in weights.items()})
        metrics: Mapping[str, float] = await load(name, kept[max(0, len(kept) - 1 - lag)])
        return metrics

    team._load = stale
    return lambda: None


def role_dominance(loop: TrainLoop, strength: float) -> Restore:
    router: Any = loop.router
    route, talker, times = router.route, loop.world.agents[-1], round(10 * strength)

    def longer(sample: Sample, count: int) -> Sample:
        return replace(sample, token_ids=sample.token_ids * count, behaviour_logprobs=sample.behaviour_logprobs * count)

    def routed(*arguments: Any) -> dict[str, list[list[Sample]]]:
        routed = route(*arguments)
        for groups in routed.values():
            tokens = Counter[bool]()
            for sample in (sample for group in groups for sample in group):
                tokens[sample.agent == talker] += len(sample.token_ids)
            count = math.ceil(times * tokens[False] / tokens[True]) if tokens[True] else 1
            for group in groups:
                group[:] = [longer(sample, count) if sample.agent == talker else sample for sample in group]
        return routed

    router.route = routed
    return lambda: None


FAULTS: dict[str, tuple[Callable[[TrainLoop, float], Restore], tuple[str, ...]]] = {
    "lazy_agent": (lazy_agent, ()),
    "nothing_learnt": (nothing_learnt, ()),
    "entropy_collapse": (entropy_collapse, (SLOW,)),
    "mismatch": (mismatch, ()),
    "role_dominance": (role_dominance, (SLOW, "algorithm.objective.normalisation=token_mean")),
}


async def train(loop: TrainLoop) -> None:
    await loop.world.open()
    await loop.team.load_weights()
    for _ in range(ITERATIONS):
        await loop.run_iteration()
    await loop.team.close()
    await loop.world.close()


def plant(experiment: str, fault: str, strength: float, seed: int) -> dict[str, Any]:
    """One training; ``fault`` is '' for none."""
    put, overrides = FAULTS[fault] if fault else (None, ())
    with tempfile.TemporaryDirectory() as folder:
        chosen = [*SHORT, f"seed={seed}", f"run_dir={Path(folder) / 'run'}", *overrides]
        with Experiment.compose(experiment, chosen)._cfg() as cfg:
            loop = build(cfg)
        restore = put(loop, strength) if put else lambda: None
        try:
            asyncio.run(train(loop))
        finally:
            restore()
        alarms = loop.diagnostics.raised(loop.progress)
    raised = [
        f"{each['name']} by {each['setting'].rpartition('.')[2]} since {each['since']}"
        for each in alarms
        if each["alarm"] == fault
    ]
    others = sorted({f"{each['alarm']} {each['name']}" for each in alarms if each["alarm"] != fault})
    chosen_keys = {"experiment": experiment, "seed": seed, "fault": fault, "strength": strength}
    return {**chosen_keys, "raised": sorted(set(raised)), "others": others}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), choices=FAULTS)
    parser.add_argument("--strengths", nargs="+", type=float, default=[1.0, 0.5])
    parser.add_argument("--seeds", nargs="+", type=int, default=[3, 4, 5])
    options = parser.parse_args()
    for experiment in options.experiments:
        for seed in options.seeds:
            for fault in options.faults:
                if (fault == "role_dominance") != experiment.endswith("_shared"):
                    continue
                for strength in options.strengths:
                    print(json.dumps(plant(experiment, fault, strength, seed)), flush=True)


if __name__ == "__main__":
    main()

"""What grouping by agent and turn is worth to a frozen Qwen2.5-Coder on HumanEval, and to a trained team.

python bench/grouping_coder.py play FOLDER --data HumanEval.jsonl MBPP.jsonl   # goes on where it was stopped
python bench/grouping_coder.py table FOLDER
python bench/grouping_coder.py trained FOLDER --run RUN   # then bench/grouping_law.py writes the page

AT-GRPO's tester and coder (`env=code scale=coder`, two turns, K = 16) play HumanEval's problems, one node for each
agent and turn; nobody learns.  Of every message there is the reward and the gradient of its log-probability, at the
sampling temperature, in an adapter (queries and values of the last LAYERS layers, one adapter for each agent).  FOLDER
has one JSON line a problem: the nodes' rewards, and the messages' gradients by their products with each other.

From them, with the prompts given: eta, the share of a pooled group's variance that its prompts explain, without the
bias of 16 samples; and, for K = 4 of the 16 in many random partitions, the noise and the signal-to-noise ratio of the
gradient that each grouping's own credit rule makes of them.  Intervals: 2,000 resamples of the problems.  Fixed before
the first run: the law holds here where the noise without groups, over AT-GRPO's, is within TOLERANCE of 1 / (1 - eta).

``trained``: the same of the last weights of RUN, a world of two agents, with the gradient of all of their weights, on
test tasks; a candidate drawn evenly goes on, so that nothing hangs on the OFFSETS that the second agent's rewards then
have, in units of the standard deviation of a reward given its prompt.  FOLDER gets a line a task, offset and rule.
The threshold is the same, at each offset; the prediction, from the game: from an offset of 2 on the noise without
groups is more than the law says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from math import isnan, nan, sqrt
from pathlib import Path
from random import Random
from statistics import fmean, pvariance, variance
from typing import Any, NamedTuple

import torch
from grouping_law import GROUPINGS, OFFSETS, TOLERANCE
from hydra import compose, initialize_config_module
from hydra.utils import instantiate
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model

from troupe.algorithms.credit.base import CreditRule
from troupe.experience import Episode, Node, Sampling
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.tree import TreeSampler
from troupe.setup.evaluation import build_conditions, read_request, read_team, untrained_team
from troupe.setup.evaluation_actors import ActorFactory
from troupe.setup.instantiation import build_world

K, DRAWN, TURNS, LAYERS, PARTITIONS, RESAMPLES = 16, 4, 2, 4, 50, 2000
LEAVE_OUT = "leave_one_out"
LEFT_OUT = (16 / 15) ** 2 / (4 / 3) ** 2
"""What leaving a message out of its own baseline does to the noise of a group of 16 over that of groups of four."""


class Measured(NamedTuple):
    """Of one problem and grouping: signal and noise of a gradient, and rewards' variance between prompts and within."""

    signal: float
    noise: float
    between: float
    within: float


def products(models: Mapping[str, Any], episode: Episode, temperature: float) -> list[list[float]]:
    """Products of the gradients of an episode's messages, node by node; those of two agents share no parameter."""
    rows, agents = [], []
    for node, candidate in episode.candidates():
        model = models[node.agent]
        learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
        ids = list(candidate.completion.token_ids)
        sequence = torch.tensor([[*node.prompt_ids, *ids]])
        logits = model(sequence, logits_to_keep=len(ids) + 1).logits[0, :-1].float() / temperature
        total = logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None]).sum()
        rows.append(torch.cat([gradient.flatten() for gradient in torch.autograd.grad(total, learnt)]))
        agents.append(node.agent)
    stacked = torch.stack(rows).double()
    same = torch.tensor([[one == other for other in agents] for one in agents])
    found: list[list[float]] = (stacked @ stacked.T * same).tolist()
    return found


async def play(out: Path, base: str, data: Sequence[Path], problems: int) -> None:
    test, train = (path.resolve() for path in data)
    words = [f"env.data.test.path={test}", f"env.data.train.path={train}", f"env.horizon={TURNS}"]
    words += [f"env.data.{part}.{key}=null" for part in ("train", "test") for key in ("config", "revision")]
    config = untrained_team("experiment=code_lora", ["scale=coder", f"scale.base={base}", *words]).config
    world = build_world("env", config["env"])
    sampling = Sampling(**config["policies"]["coder"]["sampling"]["train"])
    tokenizer, model = load_tokenizer(base), load_model(base).to(torch.float32)
    engine = TorchEngine({"coder": model}, tokenizer, max_batch_rows=64, lockstep=True)
    client = PolicyClient("coder", engine, tokenizer, model.config.max_position_embeddings, sampling)
    last = model.config.num_hidden_layers
    adapted = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], layers_to_transform=[*range(last - LAYERS, last)])
    torch.manual_seed(0)
    learner = get_peft_model(load_model(base).to(torch.float32), adapted)
    done = {line["task"] for line in map(json.loads, out.read_text().splitlines())} if out.exists() else set()
    await world.open()
    try:
        for task in world.tasks("test", problems, 0):
            if task.task_id in done:
                continue
            started = time.perf_counter()
            clients = dict.fromkeys(world.agents, client)
            ((episode,),) = await TreeSampler(k=K).collect(world, [task], clients, 0)
            played = time.perf_counter() - started
            gram = products(dict.fromkeys(world.agents, learner), episode, sampling.temperature)
            nodes = [[node.agent, node.turn, [c.reward for c in node.candidates]] for node in episode.nodes]
            with out.open("a") as stream:
                rounded = [[float(f"{value:.4g}") for value in row] for row in gram]
                stream.write(json.dumps({"task": task.task_id, "nodes": nodes, "gram": rounded}) + "\n")
            spent = time.perf_counter() - started
            print(f"{task.task_id}: {len(gram)} messages, {played:.0f} s + {spent - played:.0f} s", flush=True)
    finally:
        await world.close()
        await engine.close()


async def play_trained(run: str, tasks: int) -> list[dict[str, Any]]:
    """Lines as of :func:`play`."""
    keys: Any = OmegaConf.to_container(compose("eval", overrides=[f"run={run}", "checkpoint=last", "temperature=own"]))
    team = read_team(keys)
    (condition,) = build_conditions(read_request({**keys, "tasks": tasks}, team), team)
    mix = {**team.config["algorithm"]["sampler"], "k": K, "selection": "sampled"}
    sampler = instantiate(mix, **team.config["algorithm"].get("reward", {}))
    models = {agent: load_model(source.weights) for agent, source in condition.assignment.items()}  # type: ignore[union-attr]
    factory, lines = ActorFactory(team.config["engine"]), list[dict[str, Any]]()
    try:
        (actors,) = factory.actors([condition])
        clients = {agent: actor.client for agent, actor in actors.items()}  # type: ignore[attr-defined]
        await condition.world.open()
        for (episode,) in await sampler.collect(condition.world, condition.tasks, clients, 0):
            temperature = clients[condition.world.agents[0]].sampling.temperature
            nodes = [[node.agent, node.turn, [c.reward for c in node.candidates]] for node in episode.nodes]
            lines.append({"task": episode.task.task_id, "nodes": nodes, "gram": products(models, episode, temperature)})
    finally:
        await condition.world.close()
        await factory.close()
    return lines


def trained(lines: Sequence[dict[str, Any]], agent: str) -> list[dict[str, Any]]:
    """What is measured of ``lines``, by the offset of the rewards of ``agent``, and by whether a group's standard
    deviation divides advantages."""
    unit = sqrt(fmean(variance(rewards) for line in lines for *_, rewards in line["nodes"]))
    results = []
    for offset in OFFSETS:
        for line in lines:
            nodes = [
                [who, turn, [r + offset * unit * (who == agent) for r in all_]] for who, turn, all_ in line["nodes"]
            ]
            for normalise in (False, True):
                own = {title: measured({**line, "nodes": nodes}, rule, Random(0)) for title, rule in rules(normalise)}
                figures = {title: [float(f"{value:.4g}") for value in each] for title, each in own.items()}
                results.append({"task": line["task"], "offset": offset, "normalise": normalise, "measured": figures})
    return results


def measured(line: dict[str, Any], rule: CreditRule, rng: Random) -> Measured:
    nodes = [Node(line["task"], agent, turn, (place,), []) for place, (agent, turn, _) in enumerate(line["nodes"])]
    rewards = [values for *_, values in line["nodes"]]
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, node in enumerate(nodes):
        groups[rule.key(node)].append(place)
    between = within = 0.0
    for group in groups.values():
        own = [variance(rewards[place]) for place in group]
        means = [fmean(rewards[place]) for place in group]
        between += len(group) * (pvariance(means) - (len(group) - 1) / len(group) * fmean(own) / K)
        within += sum(own)
    gram = torch.tensor(line["gram"], dtype=torch.double)
    signal = whole = 0.0
    for _ in range(PARTITIONS):
        orders = [rng.sample(range(K), K) for _ in nodes]
        weights = torch.zeros(K // DRAWN, len(nodes) * K, dtype=torch.double)
        for part, row in enumerate(weights):
            drawn = [order[part * DRAWN :][:DRAWN] for order in orders]
            for group in groups.values():
                places = [(place, k) for place in group for k in drawn[place]]
                found = rule.advantages([rewards[place][k] for place, k in places])
                for (place, k), advantage in zip(places, found, strict=True):
                    row[place * K + k] = advantage / (len(nodes) * DRAWN)
        among = weights @ gram @ weights.T
        own_sum = among.diagonal().sum().item()
        whole += own_sum / len(weights)
        signal += (among.sum().item() - own_sum) / (len(weights) * (len(weights) - 1))
    return Measured(signal / PARTITIONS, (whole - signal) / PARTITIONS, between, within)


@cache
def rules(normalise: bool, baseline: str = "mean") -> list[tuple[str, CreditRule]]:
    """By the title of a grouping, its credit rule."""
    found = []
    for title, name in GROUPINGS.items():
        with initialize_config_module("troupe.configs", version_base="1.3"):
            words = ["+scale.std_floor=1e-6", "+scale.team_reward=own", f"algorithm.credit.normalise={normalise}"]
            words.append(f"algorithm.credit.baseline={baseline}")
            found.append((title, instantiate(compose(f"algorithm/{name}", overrides=words).algorithm.credit)))
    return found


def cells(found: Mapping[str, Sequence[Measured]]) -> list[str]:
    """A line of a table for each grouping, from what was measured of each problem."""
    rng, count = Random(0), len(found["neither"])
    draws = [list(range(count)), *(rng.choices(range(count), k=count) for _ in range(RESAMPLES))]
    lines = []
    for title in GROUPINGS:
        columns = zip(*(figures(found[title], found["agent and turn"], draw) for draw in draws), strict=True)
        lines.append(f"{title} | {' | '.join(interval(*column) for column in columns)} |")
    return lines


def table(found: Mapping[str, Sequence[Measured]]) -> str:
    rows = ["| grouping | eta | 1 / (1 - eta) | noise, over AT-GRPO's | gain |", "| --- " * 5 + "|"]
    rows += [f"| {line}" for line in cells(found)]
    holds, noise, law, _ = without_groups(found)
    return "\n".join(
        [*rows, "", f"Without groups the law {holds}: the noise is {noise:.2f} times, 1 / (1 - eta) {law:.2f}."]
    )


def without_groups(found: Mapping[str, Sequence[Measured]]) -> tuple[str, float, float, float]:
    """Whether the law holds there; the noise over AT-GRPO's; what the law says; the gain."""
    (_, law, noise, gain) = figures(found["neither"], found["agent and turn"], range(len(found["neither"])))
    return "holds" if max(law / noise, noise / law) <= TOLERANCE else "does not hold", noise, law, gain


def trained_section(file: Path) -> str:
    """That of `docs/results/grouping_law.md` on a trained team, from the lines of :func:`trained`."""
    found: dict[tuple[bool, float], dict[str, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for line in map(json.loads, file.read_text().splitlines()):
        for title, each in line["measured"].items():
            found[line["normalise"], line["offset"]][title].append(Measured(*each))
    ends = [(offset, *without_groups(found[False, offset])) for offset in OFFSETS]
    held = [offset for offset, verdict, *_ in ends if verdict == "holds"]
    (_, _, noise, law, gain), *_, (most, _, last_noise, last_law, last_gain) = ends
    text = [
        f"""\
**The gain is smaller than the law says at every offset; whether the noise agrees hangs on whether a message counts in
its own baseline.** As AT-GRPO computes advantages it does, and by the threshold, which is on the noise, the law holds
at {len(held)} of {len(OFFSETS)} offsets: without groups the noise is {noise:.2f} times AT-GRPO's without an offset,
where the law says {law:.2f}, and {last_noise:.2f} times with one of {most:g}, where it says {last_law:.2f}. But a mean
over four rewards takes a quarter of a message's own away, one over sixteen a sixteenth. With the mean of the others
alone the noise of sixteen over that of four is {LEFT_OUT:.2f} times as large, {LEFT_OUT * noise:.2f} and
{LEFT_OUT * last_noise:.2f}: below the law at every offset. The gain is the same by both: {gain:.2f} and
{last_gain:.2f}. The prediction, that from an offset of 2 on the noise is more than the law says, was wrong. Divided by
the standard deviation advantages are on another scale for every grouping, so that the gain alone compares
them. A trained team has an eta of its own, since turns and boards differ in what they earn.

A team of Plan-Path with long ways, two turns, after 6,000 completions with own outcomes (success 0.500 on test tasks):
its last weights, {len(found[False, 0.0]["neither"])} test tasks, K = 16, the gradient of all weights. *Noise* and
*gain* are for K = 4 of the 16, with the prompts given; 95 % bootstrap intervals over tasks. One team, one world.
`python -m troupe train experiment=plan_path_short_specialized env.local_share=0 loop.completions=6000
loop.iterations=1000 loop.tasks_per_iteration=24 scale.lr=0.001 seed=0`, then `python bench/grouping_coder.py trained
docs/results --run RUN`; the head of that script says what was fixed before."""
    ]
    for title, normalise in (("reward less the group's mean", False), ("divided by the standard deviation", True)):
        text += ["", f"### Trained: {title}", ""]
        text += ["| offset | grouping | eta | 1 / (1 - eta) | noise, over AT-GRPO's | gain |", "| --- " * 6 + "|"]
        text += [f"| {offset:g} | {line}" for offset in OFFSETS for line in cells(found[normalise, offset])]
    return "\n".join(text)


def interval(value: float, *drawn: float) -> str:
    """With 95 % of what was ``drawn``, where all of it is a number."""
    if any(map(isnan, drawn)):
        return "not measurable: the signal is near 0" if isnan(value) else f"{value:.2f}, not surely a number"
    ordered = sorted(drawn)
    return f"{value:.2f} ({ordered[round(0.025 * RESAMPLES)]:.2f} to {ordered[round(0.975 * RESAMPLES)]:.2f})"


def figures(own: Sequence[Measured], best: Sequence[Measured], problems: Sequence[int]) -> tuple[float, ...]:
    """The columns of the table; the gain is not a number where the signal is none."""
    here, there = ([sum(part) for part in zip(*(some[p] for p in problems), strict=True)] for some in (own, best))
    eta = here[2] / (here[2] + here[3])
    gain = there[0] / there[1] / (here[0] / here[1]) if min(here[0], there[0]) > 0 else nan
    return eta, 1 / (1 - eta), here[1] / there[1], gain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("play", "table", "trained"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, nargs=2)
    parser.add_argument("--base", default="coder_q4")
    parser.add_argument("--run")
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--problems", type=int, default=32 // (2 * TURNS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    out = options.folder / "grouping_coder.jsonl"
    if options.command == "trained":
        with initialize_config_module("troupe.configs", version_base="1.3"):
            played = asyncio.run(play_trained(options.run, options.tasks))
        results = trained(played, played[0]["nodes"][1][0])
        text = "".join(json.dumps(line) + "\n" for line in results)
        (options.folder / "grouping_trained.jsonl").write_text(text)
        return
    if options.command == "play":
        with initialize_config_module("troupe.configs", version_base="1.3"):
            asyncio.run(play(out, options.base, options.data, options.problems))
        return
    lines = list(map(json.loads, out.read_text().splitlines()))
    print(
        f"""\
# What grouping by agent and turn is worth to a coder that does not learn

**In AT-GRPO's own setting about half of a task's variance of rewards is between its prompts, and grouping by agent and
turn takes noise away; whether as much as 1 / (1 - eta) hangs on whether a message counts in its own baseline.**
Qwen2.5-Coder-0.5B-Instruct (`coder_q4`), frozen,
plays tester and coder on {len(lines)} problems of HumanEval, two turns, K = {K}: {len(lines) * 2 * TURNS} prompts. Most
of eta is between the turns: where the first program is right, or half right, the second turn can only earn less. Tester
and coder act at once and share the team's reward, so that pooling them costs little. Whether the gradient's signal
keeps up is not decided by so few problems: the gain's interval is wide or has no end. Nobody learns here, and the
gradient is that of an adapter in the last {LAYERS} layers.

`python bench/grouping_coder.py table docs/results > docs/results/grouping_coder.md` writes this page from
`grouping_coder.jsonl`; the head of the script says what is measured and how. The threshold, a factor of {TOLERANCE:g},
was fixed before the first run. *Noise* and *gain* are for K = {DRAWN} of the {K}, with the prompts given; 95 %
bootstrap intervals over problems.
In [the game](grouping_law.md) the same is exact."""
    )
    for title, normalise in (("Reward less the group's mean", False), ("Divided by the standard deviation", True)):
        found = {name: [measured(line, rule, Random(0)) for line in lines] for name, rule in rules(normalise)}
        print(f"\n## {title}\n\n{table(found)}")
        if not normalise:
            others = {
                name: [measured(line, rule, Random(0)) for line in lines] for name, rule in rules(False, LEAVE_OUT)
            }
            holds, noise, *_ = without_groups(others)
            print(f"With the mean of the others alone as the baseline it is {noise:.2f} times, and the law {holds}.")


if __name__ == "__main__":
    main()

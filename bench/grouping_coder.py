"""What grouping by agent and turn is worth to a frozen Qwen2.5-Coder on HumanEval.

python bench/grouping_coder.py play FOLDER --data HumanEval.jsonl MBPP.jsonl   # goes on where it was stopped
python bench/grouping_coder.py table FOLDER

AT-GRPO's tester and coder (`env=code scale=coder`, two turns, K = 16) play HumanEval's problems, one node for each
agent and turn; nobody learns.  Of every message there is the reward and the gradient of its log-probability, at the
sampling temperature, in an adapter (queries and values of the last LAYERS layers, one adapter for each agent).  FOLDER
has one JSON line a problem: the nodes' rewards, and the messages' gradients by their products with each other.

From them, with the prompts given: eta, the share of a pooled group's variance that its prompts explain, without the
bias of 16 samples; and, for K = 4 of the 16 in many random partitions, the noise and the signal-to-noise ratio of the
gradient that each grouping's own credit rule makes of them.  Intervals: 2,000 resamples of the problems.  Fixed before
the first run: the law holds here where the noise without groups, over AT-GRPO's, is within TOLERANCE of 1 / (1 - eta).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Hashable, Sequence
from math import isnan, nan
from pathlib import Path
from random import Random
from statistics import fmean, pvariance, variance
from typing import Any, NamedTuple

import torch
from grouping_law import GROUPINGS, TOLERANCE
from hydra import compose, initialize_config_module
from hydra.utils import instantiate
from peft import LoraConfig, get_peft_model

from troupe.algorithms.credit.base import CreditRule
from troupe.experience import Episode, Node, Sampling
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.tree import TreeSampler
from troupe.setup.evaluation import untrained_team
from troupe.setup.instantiation import build_world

K, DRAWN, TURNS, LAYERS, PARTITIONS, RESAMPLES = 16, 4, 2, 4, 50, 2000


class Measured(NamedTuple):
    """Of one problem and grouping: signal and noise of a gradient, and rewards' variance between prompts and within."""

    signal: float
    noise: float
    between: float
    within: float


def products(model: Any, episode: Episode, temperature: float) -> list[list[float]]:
    """Products of the gradients of an episode's messages, node by node; those of two agents share no parameter."""
    rows, agents = [], []
    names = [parameter for name, parameter in model.named_parameters() if "lora_B" in name]
    for node, candidate in episode.candidates():
        ids = list(candidate.completion.token_ids)
        sequence = torch.tensor([[*node.prompt_ids, *ids]])
        logits = model(sequence, logits_to_keep=len(ids) + 1).logits[0, :-1].float() / temperature
        total = logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None]).sum()
        rows.append(torch.cat([gradient.flatten() for gradient in torch.autograd.grad(total, names)]))
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
            gram = products(learner, episode, sampling.temperature)
            nodes = [[node.agent, node.turn, [c.reward for c in node.candidates]] for node in episode.nodes]
            with out.open("a") as stream:
                rounded = [[float(f"{value:.4g}") for value in row] for row in gram]
                stream.write(json.dumps({"task": task.task_id, "nodes": nodes, "gram": rounded}) + "\n")
            spent = time.perf_counter() - started
            print(f"{task.task_id}: {len(gram)} messages, {played:.0f} s + {spent - played:.0f} s", flush=True)
    finally:
        await world.close()
        await engine.close()


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


def table(lines: Sequence[dict[str, Any]], normalise: bool) -> str:
    found: dict[str, list[Measured]] = {}
    for title, name in GROUPINGS.items():
        with initialize_config_module("troupe.configs", version_base="1.3"):
            words = ["+scale.std_floor=1e-6", "+scale.team_reward=own", f"algorithm.credit.normalise={normalise}"]
            rule = instantiate(compose(f"algorithm/{name}", overrides=words).algorithm.credit)
        found[title] = [measured(line, rule, Random(0)) for line in lines]
    rng = Random(0)
    draws = [list(range(len(lines))), *(rng.choices(range(len(lines)), k=len(lines)) for _ in range(RESAMPLES))]
    rows = ["| grouping | eta | 1 / (1 - eta) | noise, over AT-GRPO's | gain |", "| --- " * 5 + "|"]
    for title in GROUPINGS:
        columns = zip(*(figures(found[title], found["agent and turn"], draw) for draw in draws), strict=True)
        rows.append(f"| {title} | {' | '.join(interval(*column) for column in columns)} |")
    (_, law, noise, _) = figures(found["neither"], found["agent and turn"], draws[0])
    holds = "holds" if max(law / noise, noise / law) <= TOLERANCE else "does not hold"
    return "\n".join(
        [*rows, "", f"Without groups the law {holds}: the noise is {noise:.2f} times, 1 / (1 - eta) {law:.2f}."]
    )


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
    parser.add_argument("command", choices=("play", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, nargs=2)
    parser.add_argument("--base", default="coder_q4")
    parser.add_argument("--problems", type=int, default=32 // (2 * TURNS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    out = options.folder / "grouping_coder.jsonl"
    if options.command == "play":
        with initialize_config_module("troupe.configs", version_base="1.3"):
            asyncio.run(play(out, options.base, options.data, options.problems))
        return
    lines = list(map(json.loads, out.read_text().splitlines()))
    print(
        f"""\
# What grouping by agent and turn is worth to a coder that does not learn

**In AT-GRPO's own setting about half of a task's variance of rewards is between its prompts, and grouping by agent and
turn takes noise away; the law 1 / (1 - eta) does not say how much.** Qwen2.5-Coder-0.5B-Instruct (`coder_q4`), frozen,
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
        print(f"\n## {title}\n\n{table(lines, normalise)}")


if __name__ == "__main__":
    main()

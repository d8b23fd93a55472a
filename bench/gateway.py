"""The gateway against the same world played natively: the same requests, seeds and tokens, one run.

Signalling in two turns, 64 episodes at once, with the laptop's model; or SmolLM2-135M that tells a story, `--turns`
times per agent, in messages of up to `--tokens` tokens.  The engine is free-running: the share of equal messages is
below 1 where batches of other requests change the last bits of logits, 1 with `--lockstep`.

Repetitions are pairs, one after the other, in alternating order; the figures are medians with quartiles.  CPU time is
that of the process.  `beside the engine` is what all threads but the engine's take: it depends less than a ratio of
wall times on what else the machine does.  It does not contain what the engine spends more on requests that come one by
one, and are decoded in smaller batches: that is in the CPU time of the engine's thread, and in that of all threads.

    python bench/gateway.py [--model laptop|smollm2_q4] [--client openai|stream|chat] [--episodes 64] [--repeat 5]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any, Self

import torch

from troupe.envs.base import StepResult, TeamEnv
from troupe.envs.signalling.world import Signalling
from troupe.envs.workflow import ClientForAgent, WorkflowResult, WorkflowWorld
from troupe.experience import Message, Sampling, Split, Task
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler

AGENTS = ("sender", "receiver")


ANIMALS = ("ant", "bear", "crow", "dog", "eel", "fox", "goose", "hare", "ibex", "jay", "koala", "lynx", "mole", "newt")


class Talk(TeamEnv):
    """Two agents tell a story, each ``turns`` times; that of each task has its own two animals.

    Equal prompts would be read once where they arrive together, as they do natively alone.
    """

    agents = AGENTS

    def __init__(self, turns: int) -> None:
        self.horizon = turns
        self.said: tuple[str, ...] = ("",) * (2 * turns)
        self.animals = ""

    @property
    def turn(self) -> int:  # type: ignore[override]
        return len(self.said) // 2

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        pairs = list(islice(permutations(ANIMALS, 2), count))
        return [Task(f"talk-{a}-{b}", split, {"animals": f"a {a} and a {b}"}) for a, b in pairs]

    def reset(self, task: Task) -> None:
        self.said, self.animals = (), task.data["animals"]

    def next_agents(self) -> tuple[str, ...]:
        return (AGENTS[len(self.said) % 2],) if len(self.said) < 2 * self.horizon else ()

    def observe(self, agent: str) -> list[Message]:
        last = f"Go on with this story: {self.said[-1]}" if self.said else f"Tell a long story about {self.animals}."
        return [{"role": "system", "content": f"You are the {agent}."}, {"role": "user", "content": last}]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        ((agent, text),) = actions.items()
        self.said = (*self.said, text)
        return StepResult({agent: 0.0}, 0.0, len(self.said) == 2 * self.horizon, False)

    def fork(self) -> Self:
        fork = type(self)(self.horizon)
        fork.said, fork.animals = self.said, self.animals
        return fork

    def state_key(self) -> Hashable:
        return self.animals, self.said


def workflow(world: TeamEnv, client: str) -> WorkflowWorld:
    """``world`` as a program behind the gateway, with OpenAI's ``client`` or that of the same process."""

    async def play(task: Task, client_for_agent: ClientForAgent) -> WorkflowResult:
        game = world.fork()
        game.reset(task)
        clients = {agent: client_for_agent(agent) for agent in AGENTS}
        callers = {agent: clients[agent].openai() for agent in AGENTS} if client != "chat" else {}
        success = False
        while acting := game.next_agents():
            (agent,) = acting
            messages: Any = [dict(message) for message in game.observe(agent)]
            if client == "stream":
                chunks = await callers[agent].chat.completions.create(model=agent, messages=messages, stream=True)
                deltas = [choice.delta.content or "" async for chunk in chunks for choice in chunk.choices]
                text = "".join(deltas)
            elif callers:
                reply = await callers[agent].chat.completions.create(model=agent, messages=messages)
                text = reply.choices[0].message.content or ""
            else:
                text = (await clients[agent].chat(messages))["content"]
            step = await game.step({agent: text})
            clients[agent].reward(local=step.local[agent], team=step.team)
            success = step.success
        return WorkflowResult(0.0, success)

    return WorkflowWorld(workflow=play, tasks=world.tasks, agents=AGENTS, horizon=world.horizon, limit_s=3600)


@dataclass
class Play:
    """One way of playing all episodes: what it cost.  Seconds, and tokens of all its messages."""

    texts: list[str]
    tokens: int
    wall_s: float
    cpu_s: float
    engine_s: float
    """CPU time of the engine's thread."""

    @property
    def line(self) -> str:
        per_message = 1000 / len(self.texts)
        return (
            f"{self.wall_s:.1f} s, {self.tokens / self.wall_s:.0f} tokens/s, "
            f"{self.cpu_s * per_message:.2f} ms of CPU per message, {self.beside_ms:.2f} ms beside the engine"
        )

    @property
    def per_token(self) -> tuple[float, float]:
        """CPU seconds: of the engine's thread, and of all threads."""
        return self.engine_s / self.tokens, self.cpu_s / self.tokens

    @property
    def beside_ms(self) -> float:
        """CPU time of all other threads, per message."""
        return (self.cpu_s - self.engine_s) / len(self.texts) * 1000


async def play(
    env: TeamEnv, tasks: Sequence[Task], clients: Mapping[str, PolicyClient], engine: TorchEngine, seed: int
) -> Play:
    def clock() -> tuple[float, float, float]:
        of_engine = engine._worker.submit(time.thread_time).result()  # its one thread
        return time.perf_counter(), time.process_time(), of_engine

    await engine.forget()  # of the play before, whose prompts are the same
    begin = clock()
    played = await ChainSampler(k=1).collect(env, tasks, clients, seed)
    wall, cpu, of_engine = (b - a for a, b in zip(begin, clock(), strict=True))
    assert not any(each.failure for (each,) in played)
    done = [candidate.completion for (each,) in played for _, candidate in each.candidates()]
    return Play([each.text for each in done], sum(len(each.token_ids) for each in done), wall, cpu, of_engine)


async def measure(options: argparse.Namespace) -> None:
    laptop = options.model == "laptop"
    world: TeamEnv = Signalling() if laptop else Talk(options.turns)
    base = "laptop_signalling" if laptop else options.model
    tokenizer, sampling = load_tokenizer(base), Sampling(max_tokens=10 if laptop else options.tokens)
    torch.set_num_threads(1)
    engine = TorchEngine(
        {"p": load_model(base).eval()},
        tokenizer,
        lockstep=options.lockstep,
        max_batch_rows=options.episodes,
        prefix_cache_gib=0 if laptop else 1,  # as scale=laptop and scale=smollm2 have it
    )
    client = PolicyClient("p", engine, tokenizer, 512, sampling)
    worlds = {"native": world, "gateway": workflow(world, options.client)}
    await worlds["gateway"].open()
    clients, tasks = dict.fromkeys(AGENTS, client), world.tasks("train", options.episodes, 0)
    for env in worlds.values():  # warms up
        await play(env, tasks[:2], clients, engine, 0)
    pairs: list[tuple[Play, Play]] = []
    for number in range(1, options.repeat + 1):
        order = list(worlds) if number % 2 else list(reversed(worlds))
        each = {}
        for name in order:
            each[name] = await play(worlds[name], tasks, clients, engine, number)
            print(f"{name:8} {each[name].line}", flush=True)
        native, gateway = each["native"], each["gateway"]
        pairs.append((native, gateway))
        same = sum(a == b for a, b in zip(native.texts, gateway.texts, strict=False)) / len(native.texts)
        print(
            f"repetition {number}: {len(native.texts)} messages, {same:.1%} of them equal; "
            f"{native.tokens / len(native.texts):.1f} tokens per message; gateway / native: "
            f"wall {gateway.wall_s / native.wall_s:.3f}, CPU {gateway.cpu_s / native.cpu_s:.3f}",
            flush=True,
        )
    report(pairs)
    await worlds["gateway"].close()
    await engine.close()


def report(pairs: Sequence[tuple[Play, Play]]) -> None:
    """Print what the pairs show, native and through the gateway."""
    for i, name in enumerate(("native", "gateway")):
        rate = statistics.median(pair[i].tokens / pair[i].wall_s for pair in pairs)
        cpu = statistics.median(pair[i].cpu_s / len(pair[i].texts) * 1000 for pair in pairs)
        beside = statistics.median(pair[i].beside_ms for pair in pairs)
        print(f"{name:8} {rate:8.0f} tokens/s  {cpu:7.2f} ms of CPU per message, {beside:.2f} ms beside the engine")
    speeds = [b.tokens / b.wall_s / (a.tokens / a.wall_s) for a, b in pairs]
    print("tokens/s of wall time, gateway / native:", _quartiles(speeds))
    for i, name in enumerate(("CPU of the engine's thread", "CPU of all threads")):
        print(f"{name} per token, gateway / native:", _quartiles([b.per_token[i] / a.per_token[i] for a, b in pairs]))
    shares = [(b.beside_ms - a.beside_ms) * len(a.texts) / 1000 / a.cpu_s for a, b in pairs]
    print("CPU beside the engine that the gateway adds, of the native CPU:", _quartiles(shares))


def _quartiles(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.4f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"median {middle:.4f}, quartiles {low:.4f} and {high:.4f}, {len(values)} pairs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["laptop", "smollm2_q4"], default="laptop")
    parser.add_argument("--client", choices=["openai", "stream", "chat"], default="openai")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=2, help="messages of each agent, of SmolLM2")
    parser.add_argument("--tokens", type=int, default=48, help="of a message at most, of SmolLM2")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--lockstep", action="store_true")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()

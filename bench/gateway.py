"""The gateway against the same world played natively: the same requests, seeds and tokens, one run.

Signalling in two turns, 64 episodes at once, with the laptop's model and the engine free-running; or SmolLM2-135M with
prompts and messages in English.  The share of equal messages is printed: below 1 where batches of other requests change
the last bits of logits, 1 with `--lockstep`.  Repetitions are interleaved; the figures are medians.

    python bench/gateway.py [--model laptop|smollm2_q4] [--episodes 64] [--repeat 5] [--lockstep]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

from troupe.envs.base import StepResult, TeamEnv
from troupe.envs.signalling.world import Signalling
from troupe.envs.workflow import ClientForAgent, Result, WorkflowWorld
from troupe.experience import Message, Sampling, Split, Task
from troupe.models.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler

AGENTS = ("sender", "receiver")


class Talk(TeamEnv):
    """Two agents speak in turn, twice each."""

    agents, horizon = AGENTS, 2

    def __init__(self) -> None:
        self.said: tuple[str, ...] = ("",) * 4

    @property
    def turn(self) -> int:  # type: ignore[override]
        return len(self.said) // 2

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return [Task(f"talk-{i}", split, {}) for i in range(count)]

    def reset(self, task: Task) -> None:
        self.said = ()

    def next_agents(self) -> tuple[str, ...]:
        return (AGENTS[len(self.said) % 2],) if len(self.said) < 4 else ()

    def observe(self, agent: str) -> list[Message]:
        last = self.said[-1] if self.said else "Tell a story about a fox and a crow."
        return [{"role": "system", "content": f"You are the {agent}."}, {"role": "user", "content": last}]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        ((agent, text),) = actions.items()
        self.said = (*self.said, text)
        return StepResult({agent: 0.0}, 0.0, len(self.said) == 4, False)

    def fork(self) -> Self:
        fork = type(self)()
        fork.said = self.said
        return fork

    def state_key(self) -> Hashable:
        return self.said


def workflow(world: TeamEnv, pure: bool) -> WorkflowWorld:
    """``world`` as a program behind the gateway."""

    async def play(task: Task, client_for_agent: ClientForAgent) -> Result:
        game = world.fork()
        game.reset(task)
        clients = {agent: client_for_agent(agent).openai() for agent in AGENTS}
        success = False
        while acting := game.next_agents():
            messages: Any = [dict(message) for message in game.observe(acting[0])]
            reply = await clients[acting[0]].chat.completions.create(model=acting[0], messages=messages)
            step = await game.step({acting[0]: reply.choices[0].message.content or ""})
            client_for_agent(acting[0]).reward(local=step.local[acting[0]], team=step.team)
            success = step.success
        return Result(0.0, success)

    return WorkflowWorld(workflow=play, tasks=world.tasks, agents=AGENTS, horizon=2, pure=pure)


async def measure(model: str, episodes: int, repeat: int, lockstep: bool) -> None:
    world = Signalling() if model == "laptop" else Talk()
    base = "laptop_signalling" if model == "laptop" else model
    tokenizer, tokens = load_tokenizer(base), 10 if model == "laptop" else 32
    engine = TorchEngine({"p": load_model(base).eval()}, tokenizer, lockstep=lockstep, max_batch_rows=episodes)
    client = PolicyClient("p", engine, tokenizer, 512, Sampling(max_tokens=tokens))
    sampler, gateway = ChainSampler(k=1), workflow(world, pure=False)
    await gateway.open()
    clients, tasks = dict.fromkeys(AGENTS, client), world.tasks("train", episodes, 0)
    rates: dict[str, list[float]] = {"native": [], "gateway": []}
    cpu: dict[str, list[float]] = {"native": [], "gateway": []}
    for number in range(repeat + 1):  # the first warms up
        texts: list[Sequence[str]] = []
        for name, env in (("native", world), ("gateway", gateway)):
            start, begun = time.perf_counter(), time.process_time()
            played = await sampler.collect(env, tasks, clients, number)
            seconds, spent = time.perf_counter() - start, time.process_time() - begun
            done = [candidate.completion for (each,) in played for _, candidate in each.candidates()]
            assert not any(each.failure for (each,) in played)
            texts.append([each.text for each in done])
            if number:
                rates[name].append(sum(len(each.token_ids) for each in done) / seconds)
                cpu[name].append(spent / len(done) * 1000)
        same = sum(a == b for a, b in zip(*texts, strict=False)) / len(texts[0])
        print(f"repetition {number}: {same:.1%} of {len(texts[0])} messages equal", flush=True)
    for name, each in rates.items():
        values, used = statistics.median(each), statistics.median(cpu[name])
        print(f"{name:8} {values:8.0f} tokens/s  {used:6.2f} ms of CPU a message")
    ratios = [a / b for a, b in zip(rates["gateway"], rates["native"], strict=True)]
    print(f"gateway / native: median {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
    await gateway.close()
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["laptop", "smollm2_q4"], default="laptop")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--lockstep", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.model, arguments.episodes, arguments.repeat, arguments.lockstep))


if __name__ == "__main__":
    main()

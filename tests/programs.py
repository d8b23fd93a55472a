"""A world of Troupe's own as somebody's program, which knows OpenAI's client."""

from functools import partial

from troupe.envs.base import TeamEnv
from troupe.envs.history import WithHistory
from troupe.envs.signalling.world import Signalling
from troupe.envs.workflow import ClientForAgent, WorkflowResult, WorkflowWorld
from troupe.experience import Split, Task


def signalling(*, history: bool) -> TeamEnv:
    return WithHistory(Signalling()) if history else Signalling()


def signalling_tasks(split: Split, count: int, seed: int) -> list[Task]:
    return Signalling().tasks(split, count, seed)


async def play_signalling(task: Task, client_for_agent: ClientForAgent, *, history: bool = False) -> WorkflowResult:
    game, success = signalling(history=history), False
    game.reset(task)
    while acting := game.next_agents():
        (agent,) = acting
        client = client_for_agent(agent)
        reply = await client.openai().chat.completions.create(
            model=client.model, messages=[dict(message) for message in game.observe(agent)]
        )
        step = await game.step({agent: reply.choices[0].message.content or ""})
        client.reward(local=step.local[agent], team=step.team, **step.info)
        success = step.success
    return WorkflowResult(0.0, success)


def through_the_gateway(*, pure: bool, history: bool = False) -> WorkflowWorld:
    return WorkflowWorld(
        workflow=partial(play_signalling, history=history),
        tasks=signalling_tasks,
        agents=("sender", "receiver"),
        horizon=2,
        pure=pure,
    )

"""A team of two in LangGraph, as its user wrote it: a sender tells a receiver colours in code words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

from troupe.envs.signalling.world import Signalling
from troupe.envs.workflow import ClientForAgent
from troupe.experience import Split, Task


class State(TypedDict, total=False):
    colours: Sequence[str]
    message: str
    guess: str


def tasks(split: Split, count: int, seed: int) -> list[Task]:
    return Signalling(horizon=1, length=2).tasks(split, count, seed)


async def solve(task: Task, client_for_agent: ClientForAgent) -> float:
    """The share of colours that the receiver guesses."""
    sender, receiver = (ChatOpenAI(**client_for_agent(agent).settings) for agent in ("sender", "receiver"))

    async def send(state: State) -> State:
        words = " ".join(["colours", *state["colours"], "before none guess none"])
        return {"message": str((await sender.ainvoke([("system", "sender signalling"), ("user", words)])).content)}

    async def receive(state: State) -> State:
        words = f"message {state['message'] or 'malformed'} before none guess none"
        return {"guess": str((await receiver.ainvoke([("system", "receiver signalling"), ("user", words)])).content)}

    graph = StateGraph(State)
    graph.add_node("send", send)
    graph.add_node("receive", receive)
    graph.add_edge(START, "send")
    graph.add_edge("send", "receive")
    graph.add_edge("receive", END)
    end = await graph.compile().ainvoke({"colours": task.data["target"]})
    guess, target = end["guess"].split(), task.data["target"]
    return sum(a == b for a, b in zip(guess, target, strict=False)) / len(target) if len(guess) == len(target) else 0.0

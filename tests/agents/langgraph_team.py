"""A team of two in LangGraph, as its user wrote it: a searcher looks facts up, a reasoner answers or sends it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

from troupe.envs.search import FactSearch
from troupe.envs.search.index import Index, Passage
from troupe.envs.workflow import ClientForAgent
from troupe.experience import Split, Task

SEARCHES = 3


class State(TypedDict, total=False):
    notes: str
    said: str
    facts: Sequence[Passage]
    searches: int


def tasks(split: Split, count: int, seed: int) -> list[Task]:
    return FactSearch().tasks(split, count, seed)


async def solve(task: Task, client_for_agent: ClientForAgent) -> float:
    """A half for the facts that were looked up, a half for the right answer."""
    searcher, reasoner = (ChatOpenAI(**client_for_agent(agent).settings) for agent in ("searcher", "reasoner"))
    index = Index.of(task.data["facts"])

    async def search(state: State) -> State:
        query = str((await searcher.ainvoke([("system", "searcher search"), ("user", state["notes"])])).text)
        facts = index.search(query.removeprefix("find "), 2)
        shown = " ".join(f"{fact.text} ;" for fact in facts) or "none"
        notes = f"{state['notes']} find {query.removeprefix('find ') or 'none'} seen {shown}"
        return {"notes": notes, "facts": [*state["facts"], *facts], "searches": state["searches"] + 1}

    async def answer(state: State) -> State:
        return {"said": str((await reasoner.ainvoke([("system", "reasoner search"), ("user", state["notes"])])).text)}

    def onwards(state: State) -> str:
        return "search" if state["said"] == "again" and state["searches"] < SEARCHES else END

    graph = StateGraph(State)
    graph.add_node("search", search)
    graph.add_node("answer", answer)
    graph.add_edge(START, "search")
    graph.add_edge("search", "answer")
    graph.add_conditional_edges("answer", onwards, ["search", END])
    end = await graph.compile().ainvoke({"notes": f"ask {task.data['question']}", "facts": [], "searches": 0})
    titles, supports = {fact.title for fact in end["facts"]}, task.data["supports"]
    right = end["said"] == f"say {task.data['answers'][0]}"
    return 0.5 * len(titles.intersection(supports)) / len(set(supports)) + 0.5 * right

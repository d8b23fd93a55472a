"""An agent in LangGraph as its user wrote it: a clerk with a function and a memory, which sends the policy all of its
earlier messages and calls again."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from troupe.envs.workflow import ClientForAgent, WorkflowResult
from troupe.experience import Task


@tool
def multiply(a: int, b: int) -> int:
    """The product of two numbers."""
    return a * b


async def solve(task: Task, client_for_agent: ClientForAgent) -> WorkflowResult:
    """The share of the task's questions whose answer is right."""
    settings = client_for_agent("clerk").settings
    model = ChatOpenAI(**settings, streaming=task.data["streaming"]).bind_tools([multiply])

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_node("tools", ToolNode([multiply]))
    graph.add_edge(START, "answer")
    graph.add_conditional_edges("answer", tools_condition)
    graph.add_edge("tools", "answer")
    clerk = graph.compile(checkpointer=InMemorySaver())
    right, messages = 0, []
    for question, product in task.data["questions"]:
        end = await clerk.ainvoke({"messages": [("user", question)]}, {"configurable": {"thread_id": task.task_id}})
        messages = end["messages"]
        right += str(product) in str(messages[-1].text)
    calls = sum(len(each.tool_calls) for each in messages if isinstance(each, AIMessage))
    results = sum(isinstance(each, ToolMessage) for each in messages)
    info = {"calls": float(calls), "results": float(results), "messages": float(len(messages))}
    return WorkflowResult(right / len(task.data["questions"]), info=info)

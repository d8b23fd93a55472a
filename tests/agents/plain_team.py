"""A team of three in plain Python and OpenAI's client: a scout, a second one who reads what it found, and a chief."""

from __future__ import annotations

from openai import AsyncOpenAI

from troupe.envs.search import FactSearch
from troupe.envs.search.index import Index
from troupe.envs.workflow import ClientForAgent
from troupe.experience import Split, Task


def tasks(split: Split, count: int, seed: int) -> list[Task]:
    return FactSearch().tasks(split, count, seed)


async def ask(client_for_agent: ClientForAgent, agent: str, role: str, words: str) -> str:
    client = client_for_agent(agent)
    messages = [{"role": "system", "content": role}, {"role": "user", "content": words}]
    caller: AsyncOpenAI = client.openai()
    reply = await caller.chat.completions.create(model=client.model, messages=messages)  # type: ignore[arg-type]
    return reply.choices[0].message.content or "none"


async def solve(task: Task, client_for_agent: ClientForAgent) -> float:
    """A half for the facts that the scouts looked up, a half for the chief's right answer."""
    index, notes, titles = Index.of(task.data["facts"]), f"ask {task.data['question']}", set()
    for scout in ("first", "second"):
        query = (await ask(client_for_agent, scout, "searcher search", notes)).removeprefix("find ")
        facts = index.search(query, 2)
        titles |= {fact.title for fact in facts}
        notes = f"{notes} find {query} seen {' '.join(f'{fact.text} ;' for fact in facts) or 'none'}"
    answer = await ask(client_for_agent, "chief", "reasoner search", notes)
    supports = task.data["supports"]
    right = answer == f"say {task.data['answers'][0]}"
    return 0.5 * len(titles.intersection(supports)) / len(set(supports)) + 0.5 * right

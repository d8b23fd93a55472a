"""An environment of verifiers with two roles: a scout asks for facts, twice; a chief answers."""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf

from troupe.envs.search import FactSearch
from troupe.envs.search.index import Index, Passage

__all__ = ["Lookup", "LookupTaskset"]


class LookupData(vf.TaskData):
    question: str
    answer: str
    facts: list[tuple[str, str]]
    supports: list[str]


class LookupTask(vf.Task[LookupData, vf.State, vf.TaskConfig]):
    """A question, and the facts that can be asked for."""


class LookupConfig(vf.TasksetConfig):
    count: int = 2000


class LookupTaskset(vf.Taskset[LookupTask, LookupConfig]):
    def load(self) -> Iterator[LookupTask]:
        for task in FactSearch().tasks("train", self.config.count, 0):
            facts = [(fact.title, fact.text) for fact in task.data["facts"]]
            answer, supports = task.data["answers"][0], list(task.data["supports"])
            data = LookupData(question=task.data["question"], answer=answer, facts=facts, supports=supports)
            yield LookupTask(data, self.config.task)


class Roles(vf.EnvConfig):
    scout: vf.AgentConfig = vf.AgentConfig()
    chief: vf.AgentConfig = vf.AgentConfig()


class Lookup(vf.Env[Roles]):
    """A half for the facts that the scout looked up, a half for the chief's right answer."""

    async def run(self, task: LookupTask, agents: vf.Agents) -> None:
        index = Index.of([Passage(title, text) for title, text in task.data.facts])
        notes = f"ask {task.data.question}"
        for _ in range(2):
            query = (await self._ask(agents.scout, "searcher search", notes)).removeprefix("find ")
            facts = index.search(query, 2)
            notes = f"{notes} find {query} seen {' '.join(f'{fact.text} ;' for fact in facts) or 'none'}"
        await self._ask(agents.chief, "reasoner search", notes)

    async def _ask(self, agent: vf.Agent, system: str, prompt: str) -> str:
        trace = await agent.run(vf.Task(vf.TaskData(system_prompt=system, prompt=prompt)))
        return trace.last_reply or "none"

    async def finalize(self, task: LookupTask, episode: vf.Episode) -> None:
        index = Index.of([Passage(title, text) for title, text in task.data.facts])
        *scouts, chief = episode.traces
        found = {fact.title for trace in scouts for fact in index.search(trace.last_reply.removeprefix("find "), 2)}
        share = len(found.intersection(task.data.supports)) / len(set(task.data.supports))
        right = chief.last_reply == f"say {task.data.answer}"
        for trace in episode.traces:
            trace.record_reward("found", share, 0.5)
            trace.record_reward("right", float(right), 0.5)

"""What a real framework brings back of earlier messages and calls is known again, token by token."""

import re
from dataclasses import replace

import pytest

from troupe.envs.workflow import WorkflowWorld
from troupe.evaluation.episodes import PolicyActor, evaluate
from troupe.evaluation.summary import summarise
from troupe.experience import Completion, Request, Sampling, Split, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.scripted import ScriptedEngine
from troupe.runs.metrics import rollout_metrics

from ..chat_templates import qwen3_tokenizer

pytestmark = pytest.mark.agents
QUESTIONS = [("What is 6 * 7?", 42), ("What is 12 * 3, and 2 * 5?", 10), ("What is 3 * 3?", 9)]


class ByLetter(ScriptedEngine):
    """Samples each character by itself, where the tokenizer would write `<tool_call>` as one token."""

    def _completion(self, request: Request, text: str) -> Completion:
        letters = [token for sign in text for token in self.tokenizer.encode(sign, add_special_tokens=False)]
        ids = (*letters, self.tokenizer.eos_token_id)
        return replace(super()._completion(request, text), token_ids=ids, logprobs=(0.0,) * len(ids))


def clerk(prompt: str, row: int, seed: int) -> str:
    """Calls for each product of the last question, with blanks in its JSON that no program writes; then the last result
    is its answer."""
    asked = prompt.rindex("What is")
    if results := re.findall(r"<tool_response>\n(\d+)", prompt[asked:]):
        return f"It is {results[-1]}."
    pairs = re.findall(r"(\d+) \* (\d+)", prompt[asked:])
    calls = [f'<tool_call>\n{{"name":"multiply",  "arguments": {{"b": {b}, "a":{a}}}}}\n</tool_call>' for a, b in pairs]
    return "\n".join(["I multiply.", *calls])


@pytest.mark.parametrize("streaming", [False, True])
async def test_memory_and_calls_come_back_in_the_tokens_that_were_sampled(streaming: bool) -> None:
    from .langgraph_clerk import solve  # needs the extra

    def tasks(split: Split, count: int, seed: int) -> list[Task]:
        return [Task(f"{split}-{i}", split, {"questions": QUESTIONS, "streaming": streaming}) for i in range(count)]

    tokenizer = qwen3_tokenizer()
    engine = ByLetter(clerk, tokenizer)
    client = PolicyClient("p", engine, tokenizer, 100_000, Sampling(max_tokens=1000))
    world = WorkflowWorld(workflow=solve, tasks=tasks, agents=["clerk"], horizon=10, tools="hermes")
    await world.open()
    by_task = await ChainSampler(k=2).collect(world, world.tasks("train", 2, 0), {"clerk": client}, 0)
    episodes = [episode for each in by_task for episode in each]
    results = await evaluate(world, world.tasks("test", 2, 0), {"clerk": PolicyActor(client)}, 0)
    await world.close()
    row, summary = rollout_metrics(episodes, 1.0), summarise(results)
    assert len(episodes) == 4 and all(len(episode.nodes) == 6 and not episode.failure for episode in episodes)
    for name in ("retokenised_prompts", "unmatched_messages", "malformed_calls", "refused_requests", "cut_prompts"):
        assert row[f"rollout/clerk/{name}"] == 0 == summary.get(f"clerk/{name}", 0.0), name
    assert row["rollout/success"] == summary["success"] == 1
    assert (summary["clerk/calls"], summary["clerk/results"], summary["clerk/messages"]) == (4, 4, 13)
    prompts = sorted((request.prompt_ids for request in engine.requests), key=len)
    last, called = prompts[-1], tokenizer.convert_tokens_to_ids("<tool_call>")
    assert last.count(called) == prompts[0].count(called)  # those of the template that explains the form
    assert tokenizer.decode(last).count("I multiply.") == 3

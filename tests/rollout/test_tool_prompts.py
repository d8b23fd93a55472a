"""Prompts with tools: what a chat template of Qwen3's kind shows, over turns, and which templates are refused."""

import json
import sys
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.history import WithHistory
from troupe.envs.math.questions import PYTHON, MathQuestions
from troupe.envs.tool_calls import ToolOffer
from troupe.experience import Sampling, Task
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.engines.remote.engine import RemoteEngine
from troupe.rollout.engines.remote.settings import RemoteSettings
from troupe.rollout.policy_client import PolicyClient, PromptError
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.scripted import ScriptedEngine
from troupe.sandbox import LocalSandbox

from ..called_worlds import CASES, Case
from ..chat_templates import QWEN3, qwen3_tokenizer

QUESTION = Task("q", "test", {"question": "How many are twice 21?", "answer": "42", "several": False})
PROGRAM = "print(6 * 7)"


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return qwen3_tokenizer()


def math(**settings: Any) -> MathQuestions:
    sets: dict[str, Any] = {"train": [], "test": [], "team": "pair", "horizon": 3, "stop": "consensus"}
    world = MathQuestions(sandbox=LocalSandbox(), **sets | settings)
    world.reset(QUESTION)
    return world


def client_of(tokenizer: PreTrainedTokenizerFast, **settings: Any) -> PolicyClient:
    engine = ScriptedEngine({}, tokenizer)
    return PolicyClient("p", engine, tokenizer, **{"context": 10_000, "sampling": Sampling(max_tokens=100), **settings})


def test_the_template_shows_the_function_and_the_world_asks_for_it(tokenizer: PreTrainedTokenizerFast) -> None:
    client = client_of(tokenizer, chat={"enable_thinking": False})
    prompt = tokenizer.decode(list(client.prompt(math(tools="hermes"), "tool", QUESTION).ids))
    assert json.dumps(PYTHON.schema) in prompt and "Call the function python" in prompt and "```" not in prompt
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    reasoner = tokenizer.decode(list(client.prompt(math(tools="hermes"), "reasoner", QUESTION).ids))
    assert "Call the function answer" in reasoner and "python" not in reasoner and "boxed" not in reasoner
    plain = tokenizer.decode(list(client.prompt(math(), "tool", QUESTION).ids))
    assert "<tools>" not in plain and "```python" in plain


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_template_shows_the_functions_of_each_world(case: Case, tokenizer: PreTrainedTokenizerFast) -> None:
    """To the agents that act first."""
    client, world = client_of(tokenizer), case.begin(LocalSandbox(), "hermes")
    plain = case.begin(LocalSandbox(), None)
    for agent in world.next_agents():
        offer = world.tools(agent)
        assert offer is not None and tuple(tool.name for tool in offer.tools) == case.functions[agent]
        prompt = tokenizer.decode(list(client.prompt(world, agent, QUESTION).ids))
        assert all(json.dumps(schema) in prompt for schema in offer.schemas) and offer.request in prompt
        assert "<tools>" not in tokenizer.decode(list(client.prompt(plain, agent, QUESTION).ids))


async def test_calls_and_results_over_turns(tokenizer: PreTrainedTokenizerFast) -> None:
    world = WithHistory(math(tools="hermes"))
    world.reset(QUESTION)
    offer = world.tools("tool")
    assert isinstance(offer, ToolOffer)
    call = offer.write("python", code=PROGRAM)
    right = await world.step({"tool": call})
    assert right.team == 1.0 and right.info["malformed"] == 0 and right.info["malformed_calls"] == 0
    await world.step({"reasoner": "[again]"})
    client = client_of(tokenizer)
    prompt = tokenizer.decode(list(client.prompt(world, "tool", QUESTION).ids))
    said = f"<|im_start|>assistant\n{call}<|im_end|>\n"
    assert f"{said}<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n<|im_start|>user\n" in prompt
    # As the template itself writes a call that a server has parsed.
    parsed = {"type": "function", "function": {"name": "python", "arguments": {"code": PROGRAM}}}
    message: list[Any] = [{"role": "user", "content": ""}, {"role": "assistant", "content": "", "tool_calls": [parsed]}]
    assert said in tokenizer.apply_chat_template(message, tokenize=False)
    broken = await world.step({"tool": call[:-20]})
    assert broken.team == 0.0 and (broken.info["malformed"], broken.info["malformed_calls"]) == (1, 1)
    assert (await world.step({"reasoner": "\\boxed{42}"})).team == pytest.approx(1 / 3)  # no output to agree with
    await world.close()


async def test_a_rollout_with_tools(tokenizer: PreTrainedTokenizerFast) -> None:
    """From sampled tokens: the tags of a call are tokens of their own, which decoding keeps."""
    offer = ToolOffer("hermes", (PYTHON,))
    answers = {
        "You are the tool agent": offer.write("python", code=PROGRAM),
        "You are the reasoner": "It is \\boxed{42}.",
    }

    def script(prompt: str, row: int, seed: int) -> str:
        return next(answer for start, answer in answers.items() if start in prompt)

    engine = ScriptedEngine(script, tokenizer)
    client = PolicyClient("p", engine, tokenizer, 10_000, Sampling(max_tokens=200))
    world = math(tools="hermes")
    ((episode,),) = await ChainSampler(k=1).collect(world, [QUESTION], {"tool": client, "reasoner": client}, 0)
    assert [outcome.success for outcome in episode.outcomes] == [True]
    tool = episode.nodes[0].candidates[0]
    assert tool.info["tool_calls"] == 1 and tool.info["malformed_calls"] == 0 and tool.team == 1
    assert tool.completion.token_ids[0] == tokenizer.convert_tokens_to_ids("<tool_call>")
    await world.close()


@pytest.mark.parametrize(
    ("template", "form", "fault"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "hermes", "shows no tools; give env.tools=null"),
        (QWEN3, "llama", "is not the form .* asks for; it is that of env.tools=hermes"),
        ("{{ tools }}{{ messages }}", "llama", "env.tools=llama is not the form that the chat template of policy 'p'"),
    ],
)
def test_templates_that_would_not_show_them(template: str, form: Any, fault: str) -> None:
    client = client_of(qwen3_tokenizer(template))
    with pytest.raises(PromptError, match=fault):
        client.prompt(math(tools=form), "tool", QUESTION)
    client.prompt(math(), "tool", QUESTION)  # has no tools


async def test_a_server_is_refused() -> None:
    engine = RemoteEngine("p", RemoteSettings("http://127.0.0.1:9", "m"))
    client = PolicyClient("p", engine, ChatCodec(), sys.maxsize, Sampling(max_tokens=100))
    with pytest.raises(ValueError, match=r"policy 'p' is remote, and calls no tools so far: give env\.tools=null"):
        await client.complete(math(tools="hermes"), "tool", QUESTION, 1, 7, ("q",))
    await engine.close()

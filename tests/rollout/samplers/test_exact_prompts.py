"""Earlier completions in the prompts of every sampler, and of evaluations: token by token as they were sampled, or
counted."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from troupe.envs.base import StepResult, TeamEnv
from troupe.evaluation.episodes import EpisodeResult, PolicyActor, evaluate
from troupe.evaluation.summary import summarise
from troupe.experience import Completion, Episode, Message, Request, Sampling, Split, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.forest import ForestSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.replay import ReplaySampler
from troupe.rollout.samplers.sampler import Sampler
from troupe.rollout.samplers.tree import TreeSampler
from troupe.rollout.scripted import ScriptedEngine

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:"
SAMPLERS = {
    "chain": ChainSampler(k=2),
    "tree": TreeSampler(k=2),
    "joint": JointSampler(k=2),
    "joint, best, cross": JointSampler(k=2, growth="best", pairing="cross"),
    "forest": ForestSampler(k=2, expansions=3),
    "replay": ReplaySampler(k=2, continuations=2, removal=""),
}


class Talk(TeamEnv):
    """Two agents speak at once, three times; each sees what it said, without blanks around it."""

    agents = ("tool", "plan")
    horizon = 3

    def __init__(self) -> None:
        self.said: tuple[Mapping[str, str], ...] = ()

    @property
    def turn(self) -> int:  # type: ignore[override]  # follows from what was said
        return len(self.said)

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return [Task(f"talk-{i}", split, {}) for i in range(count)]

    def reset(self, task: Task) -> None:
        self.said = ()

    def next_agents(self) -> tuple[str, ...]:
        return self.agents if len(self.said) < 3 else ()

    def observe(self, agent: str) -> Sequence[Message]:
        messages = [{"role": "user", "content": "go"}]
        for turn in self.said:
            messages += [{"role": "assistant", "content": turn[agent].strip()}, {"role": "user", "content": "on"}]
        return messages

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        self.said = (*self.said, dict(actions))
        score = float(sum(map(len, actions.values())))
        return StepResult(dict.fromkeys(self.agents, 0.0), score, len(self.said) == 3, False)

    def fork(self) -> "Talk":
        return copy.copy(self)

    def state_key(self) -> str:
        return repr(self.said)


class ByLetter(ScriptedEngine):
    """Samples each letter by itself, where the tokenizer would write "ab" as one token."""

    def _completion(self, request: Request, text: str) -> Completion:
        letters = [self.tokenizer.convert_tokens_to_ids(sign) for sign in text.replace(" ", "Ġ")]
        ids = (*letters, self.tokenizer.eos_token_id)
        return replace(super()._completion(request, text), token_ids=ids, logprobs=(0.0,) * len(ids))


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    alphabet = {sign: index for index, sign in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "<end>"])}
    made = Tokenizer(models.BPE(alphabet, [("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<end>", chat_template=TEMPLATE, clean_up_tokenization_spaces=False
    )


def client_of(tokenizer: PreTrainedTokenizerFast, end: str, context: int) -> tuple[PolicyClient, ByLetter]:
    """A policy whose messages differ and end with ``end``."""
    engine = ByLetter(lambda prompt, row, seed: "ab" * (1 + (row + seed) % 3) + end, tokenizer)
    return PolicyClient("p", engine, tokenizer, context, Sampling(max_tokens=40)), engine


async def play(
    sampler: Sampler, tokenizer: PreTrainedTokenizerFast, end: str, context: int = 512
) -> tuple[list[Episode], list[tuple[int, ...]]]:
    """The episodes of a task; the prompts of all requests."""
    (client, engine), world = client_of(tokenizer, end, context), Talk()
    (episodes,) = await sampler.collect(world, world.tasks("train", 1, 0), dict.fromkeys(world.agents, client), 0)
    return episodes, [request.prompt_ids for request in engine.requests]


async def play_evaluation(
    tokenizer: PreTrainedTokenizerFast, end: str
) -> tuple[list[EpisodeResult], list[tuple[int, ...]]]:
    (client, engine), world = client_of(tokenizer, end, 512), Talk()
    actors = dict.fromkeys(world.agents, PolicyActor(client))
    results = await evaluate(world, world.tasks("test", 2, 0), actors, 0)
    return results, [request.prompt_ids for request in engine.requests]


@pytest.mark.parametrize("name", SAMPLERS)
async def test_prompts_have_the_tokens_that_were_sampled(name: str, tokenizer: PreTrainedTokenizerFast) -> None:
    episodes, prompts = await play(SAMPLERS[name], tokenizer, end="")
    later = [ids for ids in prompts if "a:ab" in tokenizer.decode(ids)]
    assert later and not any(tokenizer.convert_tokens_to_ids("ab") in ids for ids in later)
    assert not any(node.retokenised for episode in episodes for node in episode.nodes)


@pytest.mark.parametrize("name", SAMPLERS)
async def test_prompts_in_other_tokens_are_counted(name: str, tokenizer: PreTrainedTokenizerFast) -> None:
    episodes, _ = await play(SAMPLERS[name], tokenizer, end=" ")
    nodes = [node for episode in episodes for node in episode.nodes]
    assert {node.turn for node in nodes} == {0, 1, 2}
    assert all(node.retokenised == (node.turn > 0) for node in nodes)


@pytest.mark.parametrize("end", ["", " "])
async def test_so_it_is_where_the_oldest_turns_are_left_out(end: str, tokenizer: PreTrainedTokenizerFast) -> None:
    """The third prompt is too long by the first turn."""
    episodes, prompts = await play(SAMPLERS["chain"], tokenizer, end, context=62)
    nodes = [node for episode in episodes for node in episode.nodes]
    assert all(node.cut == (node.turn == 2) for node in nodes)
    assert all(node.retokenised == (bool(end) and node.turn > 0) for node in nodes)
    later = [ids for ids in prompts if "a:ab" in tokenizer.decode(ids)]
    assert later and all((tokenizer.convert_tokens_to_ids("ab") in ids) == bool(end) for ids in later)


class Results(Talk):
    """What it says is a call, whose result comes last: there is no earlier turn to leave out."""

    result = ""

    def observe(self, agent: str) -> Sequence[Message]:
        return [*super().observe(agent)[:2], {"role": "tool", "content": self.result}]


@pytest.mark.parametrize(
    ("pieces", "result", "retokenised"),
    [
        (["ab"], "r" * 80, False),
        (["a", "b"], "r" * 80, True),  # the shortened result leaves no room for a token more
        (["a", "b"] * 40, "r", True),  # shortened itself
        (["ab"] * 40, "r", True),
    ],
)
async def test_and_where_messages_are_shortened(
    pieces: list[str], result: str, retokenised: bool, tokenizer: PreTrainedTokenizerFast
) -> None:
    env, (client, _) = Results(), client_of(tokenizer, "", 80)
    env.result, (task,) = result, env.tasks("train", 1, 0)
    text = "".join(pieces)
    await env.step(dict.fromkeys(env.agents, text))
    ids = tuple(tokenizer.convert_tokens_to_ids(pieces))
    said = Completion(ids, (0.0,) * len(ids), text, "length", "p", 0)
    prompt = client.prompt(env, "tool", task, [said])
    assert prompt.cut and prompt.retokenised == retokenised and "[...]" in tokenizer.decode(prompt.ids)
    assert not client.prompt(env, "tool", task).retokenised  # of another's messages nothing is known


async def test_evaluations_have_the_tokens_that_were_sampled(tokenizer: PreTrainedTokenizerFast) -> None:
    results, prompts = await play_evaluation(tokenizer, end="")
    later = [ids for ids in prompts if "a:ab" in tokenizer.decode(ids)]
    assert len(later) == 8 and not any(tokenizer.convert_tokens_to_ids("ab") in ids for ids in later)
    assert "tool/retokenised_prompts" not in summarise(results)


async def test_evaluations_count_prompts_in_other_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    results, _ = await play_evaluation(tokenizer, end=" ")
    messages = [message for result in results for message in result.messages]
    assert all(message["retokenised_prompts"] == (message["turn"] > 0) for message in messages)
    assert summarise(results)["tool/retokenised_prompts"] == pytest.approx(2 / 3)

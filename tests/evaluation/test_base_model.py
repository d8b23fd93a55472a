"""One model in every role."""

from random import Random
from typing import ClassVar

from troupe.envs.base import Skill
from troupe.envs.couplet.world import Couplet
from troupe.evaluation.base_model import expert_shares, play_base
from troupe.experience import Sampling
from troupe.models.bases.loading import load_model, load_tokenizer


async def test_one_model_speaks_for_every_agent() -> None:
    world, model, tokenizer = Couplet(), load_model("laptop_couplet"), load_tokenizer("laptop_couplet")
    tasks = world.tasks("validation", 12, 0)
    first, again = [await play_base(model, tokenizer, world, tasks, Sampling(max_tokens=12)) for _ in range(2)]
    assert [result.messages for result in first] == [result.messages for result in again]
    assert {message["agent"] for result in first for message in result.messages} == {"first", "second"}
    assert [result.task_id for result in first] == [task.task_id for task in tasks]


class Recorded(Couplet):
    """Its experts write what the model said to the same prompt; the second poet's add a word."""

    said: ClassVar[dict[str, str]] = {}

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        text = self.said[f"{agent} {self.observe(agent)[-1]['content']}"]
        return text if agent == "first" else f"{text} more"


async def test_the_share_of_messages_that_an_expert_could_write() -> None:
    world, model, tokenizer = Recorded(horizon=1), load_model("laptop_couplet"), load_tokenizer("laptop_couplet")
    tasks = world.tasks("validation", 8, 0)
    for result in await play_base(model, tokenizer, world, tasks, Sampling(temperature=0.0, max_tokens=12)):
        Recorded.said |= {f"{message['agent']} {message['saw']}": message["said"] for message in result.messages}
    assert await expert_shares(model, tokenizer, world, tasks, 12) == {"first": 1.0, "second": 0.0}

"""One model in every role."""

from troupe.envs.couplet.world import Couplet
from troupe.evaluation.base_model import play_base
from troupe.experience import Sampling
from troupe.models.loading import load_model, load_tokenizer


async def test_one_model_speaks_for_every_agent() -> None:
    world, model, tokenizer = Couplet(), load_model("laptop_couplet"), load_tokenizer("laptop_couplet")
    tasks = world.tasks("validation", 12, 0)
    first, again = [await play_base(model, tokenizer, world, tasks, Sampling(max_tokens=12)) for _ in range(2)]
    assert [result.messages for result in first] == [result.messages for result in again]
    assert {message["agent"] for result in first for message in result.messages} == {"first", "second"}
    assert [result.task_id for result in first] == [task.task_id for task in tasks]

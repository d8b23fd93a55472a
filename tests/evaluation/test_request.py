"""The keys of an evaluation, and their errors."""

from typing import Any

import pytest

from troupe.errors import ConfigError
from troupe.evaluation.request import EvalRequest, own_task_seed, requested

GOOD: dict[str, Any] = {
    "checkpoint": "best",
    "split": "test",
    "tasks": 1,
    "samples": 1,
    "temperature": ("own", 0),
    "seed": 0,
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"checkpoint": "bst"}, "checkpoint=bst is unknown; did you mean best"),
        ({"split": "dev"}, "split=dev is unknown"),
        ({"tasks": 0}, "tasks must be a whole number of at least 1, got 0"),
        ({"tasks": 10**6, "samples": 11}, "tasks=1000000 with samples=11 are more than 10,000,000 episodes"),
        ({"pass_at": [1, 9]}, "pass_at must be whole numbers from 1 to samples=1, got 9"),
        ({"samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"samples": True}, "samples must be a whole number of at least 1, got True"),
        ({"temperature": (0.5, -0.1)}, r"temperature must be own or a number of at least 0, got -0\.1"),
        ({"temperature": (float("nan"),)}, "temperature .* got nan"),
        ({"temperature": ()}, "temperature must name at least one"),
        ({"seed": "x"}, "seed must be a whole number, got 'x'"),
        ({"task_seed": 0.5}, "task_seed must be a whole number, got 0.5"),
        ({"world": [1]}, "world must hold keys"),
        ({"sampling": 3}, "sampling must hold keys, got 3"),
        ({"sampling": {"max_tokens": 0}}, r"sampling\.max_tokens must be a whole number of at least 1, got 0"),
        ({"sampling": {"max_tokens": 2.5}}, r"sampling\.max_tokens must be a whole number of at least 1, got 2\.5"),
        ({"sampling": {"top_p": 2}}, r"sampling\.top_p must be in \(0, 1\], got 2"),
        ({"sampling": {"temperature": 2}}, r"sampling\.temperature is an unknown key"),
        ({"sampling": {"stop": 3}}, r"sampling\.stop is an unknown key; did you mean top_p\?"),
        ({"sampling": {"top_p": "x"}}, r"sampling\.top_p must be in \(0, 1\], got 'x'"),
        ({"swap": "yes"}, "swap must be true, false or agents to agents, got 'yes'"),
    ],
)
def test_a_wrong_key_is_named(wrong: dict[str, Any], message: str) -> None:
    EvalRequest(**GOOD)
    with pytest.raises(ConfigError, match=message):
        EvalRequest(**GOOD | wrong)


def test_the_tasks_are_those_of_the_run() -> None:
    assert own_task_seed({"loop": {"task_seed": 3}}, "test") == 3
    assert own_task_seed({"loop": {"task_seed": 3}}, "train") == 0
    assert own_task_seed({"loop": {}}, "test") == 0  # an older run


def test_sampling_that_is_null_is_each_policys_own() -> None:
    keys = GOOD | {"temperature": ["own"], "silence": [], "world": {}, "swap": False, "agents": {}, "echo": {}}
    config = {"seed": 0, "loop": {"test_tasks": 5}}
    sampling = {"top_p": None, "top_k": None, "max_tokens": 5}
    assert requested(keys | {"sampling": sampling}, config, trained=True).sampling == {"max_tokens": 5}
    assert requested(keys, config, trained=True).sampling == {}  # of the time before the key
    for wrong in (3, 0, False, ""):
        with pytest.raises(ConfigError, match=f"sampling must hold keys, got {wrong!r}"):
            requested(keys | {"sampling": wrong}, config, trained=True)
    whole = requested(keys | {"sampling": {"top_p": 1}}, config, trained=True)
    assert isinstance(whole.sampling["top_p"], float)

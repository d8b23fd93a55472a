"""Objects from sections: what is wrong is named by its key, however deep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from troupe.errors import ConfigError
from troupe.setup.instantiation import call, construct, instantiated, partially


@dataclass(frozen=True)
class Inner:
    size: int
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")


@dataclass(frozen=True)
class Outer:
    one: Inner
    many: Mapping[str, Inner] = field(default_factory=dict)
    perhaps: Inner | None = None
    free: Mapping[str, Any] = field(default_factory=dict)


def test_sections_below_a_section() -> None:
    section = {"one": {"size": 1, "names": ["a", "b"]}, "many": {"x": {"size": 2}}, "perhaps": None, "free": {"k": [1]}}
    assert construct("outer", Outer, section) == Outer(Inner(1, ("a", "b")), {"x": Inner(2)}, None, {"k": [1]})


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("hot", "^outer must hold keys, got 'hot'$"),
        ({"one": "hot"}, r"^outer\.one must hold keys, got 'hot'$"),
        ({"one": None}, r"^outer\.one must hold keys, got None$"),
        ({"one": {"size": 1}, "many": [1]}, r"^outer\.many must hold keys, got \[1\]$"),
        ({"one": {"size": 1}, "free": 3}, r"^outer\.free must hold keys, got 3$"),
        ({"one": {"sze": 1}}, r"^outer\.one\.sze is an unknown key; did you mean size\?"),
        ({"one": {}}, r"^outer\.one\.size is missing$"),
        ({}, r"^outer\.one is missing$"),
        ({"one": {"size": 1}, "many": {"x": {"size": 0}}}, r"^outer\.many\.x: size must be at least 1, got 0$"),
    ],
)
def test_a_wrong_section_is_named(section: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        construct("outer", Outer, section)


LINEAR = {"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 3}


def test_objects_and_those_inside_of_them() -> None:
    layers = instantiated("net", {"_target_": "torch.nn.Sequential", "_args_": [LINEAR, LINEAR]})
    assert [layer.out_features for layer in layers] == [3, 3]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({}, r"^net\._target_ is missing"),
        ({"_target_": "torch.nn.Softmax", "dim": {"_target_": None}}, r"^net\.dim\._target_ is missing"),
        ({"_target_": "torch.nn.Linaer"}, r"^net\._target_=torch\.nn\.Linaer cannot be imported: "),
        (
            {"_target_": "torch.nn.Softmax", "dim": {**LINEAR, "in_features": {"_target_": "builtins.dict"}}},
            r"^net\.dim: .*got dict",
        ),
        ({"_target_": "abc"}, r"^net\._target_=abc is a module, which cannot be called"),
        ({"_target_": "no_such_module.Thing"}, r"^net\._target_=no_such_module\.Thing cannot be imported: "),
        ({**LINEAR, "bais": True}, r"^net\.bais is an unknown key; did you mean bias\?"),
        ({"_target_": "torch.nn.Linear", "in_features": 2}, r"^net\.out_features is missing$"),
        (
            {"_target_": "torch.nn.Sequential", "_args_": [LINEAR, {**LINEAR, "bais": 1}]},
            r"^net\._args_\[1\]\.bais is an unknown key",
        ),
        ({"_target_": "torch.nn.Softmax", "dim": {**LINEAR, "size": 1}}, r"^net\.dim\.size is an unknown key"),
        ({**LINEAR, "in_features": "two"}, r"^net\.in_features must be a whole number, got 'two'"),
    ],
)
def test_a_wrong_node_is_named(node: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        instantiated("net", node)


def test_a_node_that_is_completed_later() -> None:
    make = partially("optimizer", {"_target_": "torch.optim.SGD", "lr": 0.5})
    assert make([torch.nn.Parameter(torch.zeros(1))]).defaults["lr"] == 0.5
    late = partially("scheduler", {"_target_": "torch.optim.lr_scheduler.StepLR"})
    with pytest.raises(ConfigError, match=r"^scheduler\.step_size is missing$"):
        late(make([torch.nn.Parameter(torch.zeros(1))]))
    with pytest.raises(ConfigError, match=r"^optimizer\.rate is an unknown key"):
        partially("optimizer", {"_target_": "torch.optim.SGD", "rate": 0.5})


def test_a_refusal_names_its_key_once() -> None:
    def refuse(text: str) -> None:
        raise ValueError(text)

    for text, told in (("too small", "loop: too small"), ("loop.k is too small", "loop.k is too small")):
        with pytest.raises(ConfigError, match=f"^{told}$"):
            call("loop", refuse, text)
    with pytest.raises(ConfigError, match=r"^env\.size is too small$"):  # the world's own key says more
        call("loop.test_tasks", refuse, "env.size is too small")
    with pytest.raises(OSError):  # no mistake of the configuration
        call("loop", open, "/nowhere/at/all")

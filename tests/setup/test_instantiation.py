"""Objects and sections, and the keys of what is wrong in them."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.history import WithHistory
from troupe.errors import ConfigError
from troupe.setup.instantiation import (
    build_world,
    call,
    check_complete,
    check_known,
    check_types,
    construct,
    instantiated,
    partially,
)
from troupe.setup.parts import parts_of


def plain(first: int, second: int = 2, *, third: int) -> None:
    raise AssertionError("called")


def open_ended(first: int, **more: Any) -> None:
    raise AssertionError("called")


class Made:
    def __init__(self, size: int) -> None:
        raise AssertionError("called")


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (plain, ["first", "third"]),
        (plain, ["first", "second", "third"]),
        (open_ended, ["first", "whatever"]),
        (Made, ["size"]),
        (functools.partial(plain, third=3), ["first"]),
        (range, ["anything"]),  # written in C, without a signature
    ],
)
def test_what_fits(target: Callable[..., Any], names: list[str]) -> None:
    check_known("key", target, names)
    check_complete("key", target, names)


@pytest.mark.parametrize(
    ("target", "names", "message"),
    [
        (plain, ["first", "third", "secnd"], r"^key\.secnd is an unknown key; did you mean second\? Known: first, sec"),
        (plain, ["first"], r"^key\.third is missing$"),
        (Made, [], r"^key\.size is missing$"),
        (open_ended, ["more"], r"^key\.first is missing$"),
    ],
)
def test_what_does_not_fit(target: Callable[..., Any], names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_known("key", target, names)
        check_complete("key", target, names)


def test_arguments_that_follow_by_position() -> None:
    check_complete("key", plain, ["third"], positional=1)
    with pytest.raises(ConfigError, match=r"key\.third is missing"):
        check_complete("key", plain, [], positional=1)


def test_the_whole_configuration_has_no_prefix() -> None:
    with pytest.raises(ConfigError, match=r"^sze is an unknown key; did you mean size"):
        check_known("", Made, ["sze"])


def typed(
    lr: float | torch.Tensor = 0.1,
    steps: int = 1,
    devices: int | str = 1,
    name: str = "x",
    exact: bool = False,
    limit: int | None = None,
    sizes: tuple[int, ...] = (),
) -> None:
    raise AssertionError("called")


def test_a_type_that_only_checkers_import_hides_no_other() -> None:
    def function(model: "Nowhere", rows: int) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    check_types("key", function, {"model": object(), "rows": 1})
    with pytest.raises(ConfigError, match=r"key\.rows must be a whole number, got True"):
        check_types("key", function, {"rows": True})


def test_values_of_the_declared_types() -> None:
    check_types("key", typed, {"lr": 1, "steps": 2, "devices": "auto", "name": "y", "exact": True, "limit": None})
    check_types("key", typed, {"lr": 0.5, "devices": 3, "limit": 3, "sizes": "left to the function"})
    check_types("key", range, {"anything": "goes"})  # its types cannot be told


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("lr", "fast", "a number"),
        ("lr", True, "a number"),
        ("steps", 2.5, "a whole number"),
        ("steps", None, "a whole number"),
        ("devices", [1], "a whole number or a text"),
        ("name", 3, "a text"),
        ("exact", "no", "true or false"),
        ("limit", "none", "a whole number"),
    ],
)
def test_values_of_other_types_are_named(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=rf"^key\.{name} must be {expected}, got {re.escape(repr(value))}$"):
        check_types("key", typed, {name: value})


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


class Faulty:
    def __init__(self, kind: str) -> None:
        if kind == "type":
            len(1)  # type: ignore[arg-type]
        raise {"key": KeyError, "none": RuntimeError, "value": ValueError}[kind]("what")


def test_a_fault_of_a_class_is_none_of_its_values() -> None:
    node = {"_target_": f"{__name__}.Faulty"}
    for kind, error in (("type", TypeError), ("key", KeyError), ("none", RuntimeError)):
        with pytest.raises(error) as raised:
            instantiated("net", {**node, "kind": kind})
        assert raised.value.__notes__ == ["making net"]
    with pytest.raises(ConfigError, match=r"^net: what$"):
        instantiated("net", {**node, "kind": "value"})


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


NODE = {"_target_": "troupe.envs.grid.plan_path.PlanPath", "horizon": 3}


class Historian(PlanPath):
    def __init__(self, *, history: int = 0) -> None:
        super().__init__()


@pytest.mark.parametrize(("history", "turns"), [(True, 3), (2, 2), (1, 1)])
def test_a_memory(history: Any, turns: int) -> None:
    world = build_world("env", {**NODE, "history": history})
    assert isinstance(world, WithHistory) and world.turns == turns and isinstance(world.world, PlanPath)


@pytest.mark.parametrize("node", [NODE, {**NODE, "history": False}, {**NODE, "history": None}])
def test_no_memory(node: dict[str, Any]) -> None:
    assert type(build_world("env", node)) is PlanPath


@pytest.mark.parametrize("history", [0, -2, "always", [1]])
def test_what_is_no_memory(history: Any) -> None:
    with pytest.raises(ConfigError, match=r"env\.history must be true, false, or a number of turns"):
        build_world("env", {**NODE, "history": history})


def test_a_world_that_has_the_key_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\._target_=.*Historian has an argument 'history'"):
        build_world("env", {"_target_": f"{__name__}.Historian", "history": False})


@pytest.mark.parametrize("words", [["regime=specialized"], ["regime=single"], ["env=mixed", "algorithm=grpo"]])
def test_the_key_is_any_worlds(composed: Any, words: list[str]) -> None:
    config = composed(*words, "env.history=2")
    parts = parts_of(OmegaConf.to_container(config, resolve=True), OmegaConf.to_yaml(config))
    assert isinstance(parts.world, WithHistory) and parts.world.turns == 2
    assert type(parts_of(OmegaConf.to_container(composed(*words), resolve=True), None).world) is not WithHistory

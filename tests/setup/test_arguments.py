"""Names against signatures: what is unknown or missing is named, and nothing is called."""

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from troupe.errors import ConfigError
from troupe.setup.arguments import check_arguments, check_complete, check_known, check_types


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
    check_arguments("key", target, names)


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
        check_arguments("key", target, names)


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

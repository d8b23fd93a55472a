"""Names against signatures: what is unknown or missing is named, and nothing is called."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from troupe.errors import ConfigError
from troupe.setup.arguments import check_arguments, check_complete, check_known


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

"""Thoughts are no part of a message."""

import pytest

from troupe.envs.fences import spoken


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("a", "a"),
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),  # the prompt opened the thoughts
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>a", ""),
        ("a</think>b<think>c", "b"),
        ("<think></think>", ""),
        ("", ""),
    ],
)
def test_what_is_spoken(message: str, text: str) -> None:
    assert spoken(message) == text

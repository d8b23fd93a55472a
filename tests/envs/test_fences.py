"""Fenced blocks of Markdown."""

from troupe.envs.fences import fenced_blocks


def test_a_fence_within_a_line_closes_nothing() -> None:
    assert fenced_blocks("```python\nx = '```'\n```\n") == [("python", "x = '```'")]

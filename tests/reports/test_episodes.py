"""Texts of stored episodes, as pages and the console show them."""

from troupe.reports.episodes import LONGEST, plain


def test_control_characters_are_seen_and_length_is_bounded() -> None:
    assert plain("a\x00b\x1b[2J\n\t") == "a␀b␛[2J\n\t"
    assert plain("a\x9b2J") == "a\ufffd2J"
    assert plain("x" * LONGEST) == "x" * LONGEST
    assert plain("x" * (LONGEST + 1200)) == "x" * LONGEST + "\n… 1,200 more characters are in the file"

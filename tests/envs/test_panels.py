"""Panels show any text as it is, in XML and in rich's markup."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from troupe.envs.drawing import (
    COLUMNS,
    LEFT_OUT,
    LINES_IN_ALL,
    MOST_BYTES,
    SVG,
    Panel,
    check_svg,
    draw_panels,
    markup,
    tone_of,
)

NASTY = ["[bold]x[/bold]", r"\[b]", r"\\[ x \\]", "[/]", ":heart: a[1:2:3]", "[a:smile:]", "end\\", "[link=x]", "[[/b]"]


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{{{SVG}}}text")]


def test_panels_from_top_to_bottom() -> None:
    drawing = draw_panels("World", [Panel("task", "a < b\n\n  & c"), Panel("agent", "right", "good")])
    check_svg(drawing.svg)
    assert texts(drawing.svg) == ["task", "a < b", "\N{NO-BREAK SPACE}" * 2 + "& c", "agent", "right"]
    assert Text.from_markup(drawing.text).plain.splitlines() == [
        *("┃ task", "┃ a < b", "┃ ", "┃   & c"),
        *("┃ agent", "┃ right"),
    ]
    assert drawing.text.count("[green]") == 2
    first, second = ElementTree.fromstring(drawing.svg).iter(f"{{{SVG}}}rect")
    assert float(second.attrib["y"]) > float(first.attrib["height"])
    assert first.attrib["fill"] == "currentColor" != second.attrib["fill"]


@pytest.mark.parametrize("text", NASTY)
def test_markup_shows_what_it_is_given(text: str) -> None:
    assert Text.from_markup(f"[red]┃[/] {markup(text)}\n[red]┃[/]").plain == f"┃ {text}\n┃"


@given(st.text(alphabet="\\[]/ab:=#@ \"'", max_size=20))
def test_markup_shows_any_brackets_and_colons(text: str) -> None:
    assert Text.from_markup(f"[red]┃[/] {markup(text)}\n[red]┃[/]").plain == f"┃ {text}\n┃"


@given(st.text(max_size=300))
def test_any_text_is_drawn(text: str) -> None:
    drawing = draw_panels("World", [Panel("agent", text, "bad")])
    check_svg(drawing.svg)
    assert len(Text.from_markup(drawing.text).plain.splitlines()) == drawing.text.count("┃") - text.count("┃")


@pytest.mark.parametrize("sign", ["&", "x", "\N{CLINKING BEER MUGS}", "\x00", "\ud800", "\n", "[", "\u202e", "x "])
@pytest.mark.parametrize("panels", [1, 20, 60])
def test_long_texts_are_cut_in_the_middle(sign: str, panels: int) -> None:
    text = f"begin\n{sign * 100_000}\nend"
    drawing = draw_panels("World", [Panel("agent", text)] * panels)
    check_svg(drawing.svg)
    assert len(drawing.svg.encode()) < MOST_BYTES and LEFT_OUT in texts(drawing.svg)
    lines = Text.from_markup(drawing.text).plain.split("\n")
    assert len(lines) <= LINES_IN_ALL and all(len(line) <= COLUMNS + 2 for line in lines)
    assert lines[-1] == "┃ end" and "┃ begin" in lines


def test_tones() -> None:
    assert [tone_of(share) for share in (1.0, 0.99, 0.01, 0.0)] == ["good", "partly", "partly", "bad"]

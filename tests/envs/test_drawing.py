"""The check of a world's SVG."""

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

START = f'<svg xmlns="{SVG}" viewBox="0 0 1 1">'


@pytest.mark.parametrize(
    "inside", ["", "<title>&lt;b&gt;</title>", '<path fill="url(#a)" d="M0 0h1"/>', "<g><text>é</text></g>"]
)
def test_drawings_that_are_fit(inside: str) -> None:
    check_svg(f"{START}{inside}</svg>")


@pytest.mark.parametrize(
    ("svg", "fault"),
    [
        (f"{START}<g></svg>", "no XML"),
        ("", "no XML"),
        ("<svg viewBox='0 0 1 1'></svg>", "its root is svg"),
        (f'<svg xmlns="{SVG}"></svg>', "viewBox"),
        (f"{START}<script>1</script></svg>", "element script"),
        (f"{START}<style>*{{}}</style></svg>", "element style"),
        (f"{START}<foreignObject/></svg>", "element foreignObject"),
        (f'{START}<b xmlns="http://www.w3.org/1999/xhtml"/></svg>', "element b"),
        (f'{START}<path onclick="f()"/></svg>', "attribute onclick"),
        (f'{START}<use href="#a"/></svg>', "attribute href"),
        (f'{START}<use xmlns:x="http://www.w3.org/1999/xlink" x:href="a.svg"/></svg>', "attribute href"),
        (f'{START}<path fill="url(https://a.b/c)"/></svg>', "attribute fill"),
        (f'{START}<path fill="url(c.svg#d)"/></svg>', "attribute fill"),
        (f'{START}<path style="fill:red"/></svg>', "attribute style"),
        (f'{START}<path id="a"/></svg>', "attribute id"),
        (f'<!DOCTYPE svg [<!ENTITY a "b">]>{START}&a;</svg>', "declaration"),
        (f'<?xml-stylesheet href="a.css"?>{START}</svg>', "declaration"),
        (f"{START}<title>{'a' * MOST_BYTES}</title></svg>", "bytes"),
    ],
)
def test_drawings_that_a_page_must_not_hold(svg: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        check_svg(svg)


# ---- panels show any text as it is, in XML and in rich's markup ------------------------------------------------------


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

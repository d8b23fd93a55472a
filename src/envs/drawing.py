"""What a world looks like to people: an SVG for pages, coloured text for a terminal.

Panels of text, one below the other: how worlds of words draw themselves.

A panel has a title, such as the agent that wrote its text, and a bar at its left; the bar's colour says how good it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Literal
from xml.etree import ElementTree

from ..errors import visible

SVG = "http://www.w3.org/2000/svg"
MOST_BYTES = 64_000
"""Of an SVG: a page holds one per turn of an episode."""

ACTIVE = {"script", "foreignObject", "style", "image", "iframe", "embed", "object", "animate", "set", "a"}
"""Elements that run code, load something or change themselves."""
LINK = re.compile(r"url\(\s*['\"]?(?!#)|(?:https?|data|file|javascript):", re.IGNORECASE)


@dataclass(frozen=True)
class Drawing:
    """The world now, drawn twice.

    ``svg`` is one ``<svg>`` element with a ``viewBox``, without scripts, styles, ids or links, so that a page may hold
    many; what is neither a piece nor a mark has the colour ``currentColor``, that of the text around it, so that it is
    seen on dark and on light pages.  ``text`` is lines of characters in rich's markup; it can be read without colours.
    """

    svg: str
    text: str


def check_svg(svg: str) -> None:
    """Raise ``ValueError`` where ``svg`` is no such element as :class:`Drawing` describes."""
    if len(svg.encode()) > MOST_BYTES:
        raise ValueError(f"it has {len(svg.encode()):,} bytes, more than {MOST_BYTES:,}")
    if "<!" in svg or "<?" in svg:
        raise ValueError("it has a declaration, a comment or a processing instruction")
    try:
        root = ElementTree.fromstring(svg)  # without declarations there are no entities to expand
    except ElementTree.ParseError as error:
        raise ValueError(f"it is no XML: {error}") from error
    if root.tag != f"{{{SVG}}}svg" or "viewBox" not in root.attrib:
        raise ValueError(f"its root is {root.tag}, not svg of {SVG} with a viewBox")
    for element in root.iter():
        namespace, _, tag = element.tag.rpartition("}")
        if namespace != f"{{{SVG}" or tag in ACTIVE:
            raise ValueError(f"element {tag} is not allowed")
        for key, value in element.attrib.items():
            name = key.rpartition("}")[2]
            if name.lower().startswith("on") or name in ("href", "src", "style", "id") or LINK.search(value):
                raise ValueError(f"attribute {name}={value!r:.80} of element {tag} is not allowed")


Tone = Literal["neutral", "good", "partly", "bad"]

COLOURS: dict[Tone, tuple[str, str]] = {
    "neutral": ("currentColor", "bright_black"),
    "good": ("#22a06b", "green"),
    "partly": ("#e08a2c", "orange3"),
    "bad": ("#d1453b", "red"),
}
"""On pages, and in a terminal."""
COLUMNS, LINES, LINES_IN_ALL, PANELS = 44, 16, 96, 24
"""Characters of a line, lines of a panel, lines and panels of a drawing: of more, those in the middle are left out."""
LINE, COLUMN, MARGIN, GAP = 6.4, 3.02, 5.0, 3.0
"""Height of a line, width of a character, left margin, and space between panels, in units of the picture."""
LEFT_OUT = "[...]"

_NOT_IN_XML = re.compile(r"[^\t\n\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
_BRACKET = re.compile(r"(\\*)\[(?=([a-z#/@][^[]*?\])?)")
_EMOJI = re.compile(r"(?<=:)(?=\S+?:)")


@dataclass(frozen=True)
class Panel:
    """``text`` may be anything that a model writes."""

    title: str
    text: str
    tone: Tone = "neutral"


def tone_of(share: float) -> Tone:
    """That of a result of which ``share``, in [0, 1], is right."""
    return "good" if share > 1 - 1e-6 else "partly" if share > 0 else "bad"


def draw_panels(title: str, panels: Sequence[Panel]) -> Drawing:
    """``panels`` from top to bottom; ``title`` is what a pointer over the picture shows."""
    if len(panels) > PANELS:
        panels = [*panels[: PANELS // 2], Panel(LEFT_OUT, ""), *panels[1 - PANELS // 2 :]]
    most = min(LINES, LINES_IN_ALL // max(1, len(panels)) - 1)
    parts, rows, y = list[str](), list[str](), 0.0
    for panel in panels:
        colour, name = COLOURS[panel.tone]
        lines = _lines(panel.text, most)
        height = LINE * (len(lines) + 1)
        opacity = ' fill-opacity=".3"' if panel.tone == "neutral" else ""
        parts.append(f'<rect y="{y:g}" width="2" height="{height:g}" fill="{colour}"{opacity}/>')
        parts.append(_text(panel.title, y, ' font-weight="bold" fill-opacity=".65"'))
        parts += [_text(line, y + LINE * number) for number, line in enumerate(lines, 1) if line]
        rows += [f"[{name}]┃[/] {line}" for line in (f"[bold]{markup(panel.title)}[/]", *map(markup, lines))]
        y += height + GAP
    svg = (
        f'<svg xmlns="{SVG}" viewBox="0 0 {MARGIN + COLUMN * COLUMNS:g} {max(y - GAP, LINE):g}" role="img">'
        f'<title>{escape(title)}</title><g font-family="ui-monospace,monospace" font-size="5" fill="currentColor">'
        f"{''.join(parts)}</g></svg>"
    )
    return Drawing(svg, "\n".join(rows))


def markup(line: str) -> str:
    """``line`` as rich's markup that shows it unchanged, without styles and emojis."""
    return "[b][/b]".join(_BRACKET.sub(_escaped, part) for part in _EMOJI.split(line))


def _escaped(match: re.Match[str]) -> str:
    backslashes, tag = match.groups()
    return "\\" * (2 * len(backslashes) + 1 if tag else len(backslashes) + 1) + "["


def _lines(text: str, most: int) -> list[str]:
    """The lines of ``text``, wrapped, at most ``most``."""
    if len(text) > (limit := COLUMNS * most):
        text = f"{text[: limit // 2]}\n{LEFT_OUT}\n{text[-limit // 2 :]}"
    shown = (_NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", visible(line.expandtabs(4))) for line in text.splitlines())
    lines = [part for line in shown for part in wrap(line, COLUMNS, break_on_hyphens=False) or [""]]
    if len(lines) <= most:
        return lines
    end = (most - 1) // 2
    return [*lines[: most - 1 - end], LEFT_OUT, *lines[len(lines) - end :]]


def _text(line: str, y: float, style: str = "") -> str:
    """With blanks at the beginning that browsers keep."""
    words = line.lstrip(" ")
    line = "\N{NO-BREAK SPACE}" * (len(line) - len(words)) + escape(words, quote=False)
    return f'<text x="{MARGIN:g}" y="{y + 4.8:g}"{style}>{line}</text>'

"""What a world looks like to people: an SVG for pages, coloured text for a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

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

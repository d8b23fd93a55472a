"""The check of a world's SVG."""

import pytest

from troupe.envs.drawing import MOST_BYTES, SVG, check_svg

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

"""The drawings of the grid worlds show each piece at its place, in characters and in SVG."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from rich.text import Text

from troupe.envs.drawing import SVG, check_svg
from troupe.envs.grid.drawing import CELL, draw_room, draw_sudoku
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.sudoku import Sudoku
from troupe.envs.grid.two_roles import TwoRoleWorld

CLUES = (0, 2, 3, 4, 3, 4, 0, 0, 0, 1, 4, 3, 4, 3, 2, 1)
GRID = (1, 2, 3, 4, 3, 4, 0, 0, 0, 1, 4, 3, 4, 3, 2, 1)


def plain(text: str) -> list[str]:
    return [line.rstrip() for line in Text.from_markup(text).plain.splitlines()]


def elements(svg: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(f"{{{SVG}}}{tag}"))


def test_a_room() -> None:
    drawing = draw_room("Room", 4, walls={0, 1, 2, 4}, worker=5, boxes={6, 10}, goals={10, 15})
    assert plain(drawing.text) == ["██████·", "██● □ ·", "· · ▣ ·", "· · · ◇"]
    assert [title.text for title in elements(drawing.svg, "title")] == ["Room"]
    boxes = [(float(rect.attrib["x"]), float(rect.attrib["y"])) for rect in elements(drawing.svg, "rect")]
    assert boxes == [(2 * CELL + 1.5, CELL + 1.5), (2 * CELL + 1.5, 2 * CELL + 1.5)]
    body, *_eyes = elements(drawing.svg, "circle")
    assert (float(body.attrib["cx"]), float(body.attrib["cy"])) == (15, 15)
    walls = elements(drawing.svg, "path")[1].attrib["d"]
    assert walls == "M0 0h30v10h-30zM0 10h10v10h-10z"  # runs of a row are one rectangle


def test_the_colours_tell_what_is_on_a_goal() -> None:
    away, there = (draw_room("Room", 3, (), 0, [4], [goal]).svg for goal in (5, 4))
    assert elements(away, "rect")[0].attrib["fill"] != elements(there, "rect")[0].attrib["fill"]
    assert plain(draw_room("Room", 2, (), 3, (), (3,)).text) == ["· ·", "· ◉"]


def test_a_sudoku_grid() -> None:
    drawing = draw_sudoku(4, CLUES, GRID)
    assert plain(drawing.text) == [" 1 2 │ 3 4", " 3 4 │ · ·", "─────┼─────", " · 1 │ 4 3", " 4 3 │ 2 1"]
    _, clues, own = elements(drawing.svg, "g")
    assert "".join(text.text or "" for text in clues) == "".join(str(digit) for digit in CLUES if digit)
    ((only,),) = (own,)
    assert only.text == "1" and (float(only.attrib["x"]), float(only.attrib["y"])) == (5, 7.3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sokoban(size=12, boxes=4, inner_walls=20, max_solution=60),
        lambda: PlanPath(size=20, walls=0.3),
        lambda: Sudoku(size=9, min_blanks=40, max_blanks=40),
        lambda: Sudoku(size=6),
    ],
)
def test_the_svg_is_small_and_fit_for_a_page(make: Callable[[], TwoRoleWorld]) -> None:
    world = make()
    world.reset(world.tasks("train", 1, seed=0)[0])
    drawing = world.draw()
    assert drawing is not None
    check_svg(drawing.svg)
    assert len(drawing.svg.encode()) < 6000 and "currentColor" in drawing.svg

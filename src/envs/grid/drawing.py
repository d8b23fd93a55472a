"""Boards as drawings: rooms with walls and pieces, and Sudoku grids.

Colours are of medium lightness, so that they stand out from dark pages and from light ones.  A cell is 10 units wide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..drawing import SVG, Drawing
from .sudoku_board import BOXES, Grid

CELL = 10
BLUE, ORANGE, GREEN = "#3b82f6", "#e08a2c", "#22a06b"

WALL, FLOOR = "[bright_black]██[/]", "[bright_black]· [/]"
SIGNS = {
    (False, False, False): FLOOR,
    (False, False, True): "[green]◇ [/]",
    (True, False, False): "[bold orange3]□ [/]",
    (True, False, True): "[bold green]▣ [/]",
    (False, True, False): "[bold dodger_blue1]● [/]",
    (False, True, True): "[bold green]◉ [/]",
}
"""Of a free cell: by whether it has a box, the worker, a goal."""


def draw_room(
    title: str, size: int, walls: Collection[int], worker: int, boxes: Collection[int], goals: Collection[int]
) -> Drawing:
    """Walls, one worker or walker, boxes, and goals; cells as in :mod:`.board`."""
    solved = worker in goals and not boxes
    parts = [
        f'<path fill="currentColor" fill-opacity=".08" d="M0 0h{size * CELL}v{size * CELL}H0z"/>',
        f'<path fill="currentColor" fill-opacity=".5" d="{"".join(_bricks(size, walls))}"/>',
        f'<path fill="none" stroke="currentColor" stroke-opacity=".12" stroke-width=".4" d="{_lines(size)}"/>',
        *(_goal(size, cell) for cell in sorted(goals)),
        *(_box(size, cell, GREEN if cell in goals else ORANGE) for cell in sorted(boxes)),
        _worker(size, worker, GREEN if solved else BLUE),
    ]
    rows = [range(start, start + size) for start in range(0, size**2, size)]
    lines = (
        "".join(WALL if cell in walls else SIGNS[cell in boxes, cell == worker, cell in goals] for cell in row)
        for row in rows
    )
    return Drawing(_svg(title, size, parts), "\n".join(lines))


def draw_sudoku(size: int, clues: Grid, grid: Grid) -> Drawing:
    """The digits of ``grid``, clues in bold, those that the team filled in blue."""
    height, width = BOXES[size]
    filled = [cell for cell, digit in enumerate(grid) if digit and not clues[cell]]
    blanks = "".join(_square(size, cell) for cell, digit in enumerate(clues) if not digit)
    side = size * CELL
    thick = "".join(
        [f"M{x * CELL} 0V{side}" for x in range(0, size + 1, width)]
        + [f"M0 {y * CELL}H{side}" for y in range(0, size + 1, height)]
    )
    parts = [
        f'<path fill="currentColor" fill-opacity=".06" d="{blanks}"/>',
        f'<path fill="none" stroke="currentColor" stroke-opacity=".3" stroke-width=".4" d="{_lines(size)}"/>',
        f'<path fill="none" stroke="currentColor" stroke-width=".9" stroke-linecap="square" d="{thick}"/>',
        '<g font-family="ui-sans-serif,sans-serif" font-size="6.5" text-anchor="middle">',
        f'<g fill="currentColor" font-weight="700">{_digits(size, clues, range(size**2))}</g>',
        f'<g fill="{BLUE}">{_digits(size, grid, filled)}</g></g>',
    ]
    lines = []
    for row in range(size):
        if row and row % height == 0:
            lines.append("[bright_black]" + "┼".join(["─" * (2 * width + 1)] * (size // width)) + "[/]")
        signs = [_sign(clues[cell], grid[cell]) for cell in range(row * size, (row + 1) * size)]
        lines.append(
            "[bright_black]│[/]".join(
                " " + " ".join(signs[start : start + width]) + " " for start in range(0, size, width)
            )
        )
    return Drawing(_svg("Sudoku", size, parts), "\n".join(lines))


def _svg(title: str, size: int, parts: Iterable[str]) -> str:
    side = size * CELL
    return (
        f'<svg xmlns="{SVG}" viewBox="-1 -1 {side + 2} {side + 2}" role="img"><title>{title}</title>'
        f"{''.join(parts)}</svg>"
    )


def _corner(size: int, cell: int) -> tuple[int, int]:
    """x and y of the top left corner of a cell."""
    row, column = divmod(cell, size)
    return column * CELL, row * CELL


def _square(size: int, cell: int) -> str:
    x, y = _corner(size, cell)
    return f"M{x} {y}h{CELL}v{CELL}h-{CELL}z"


def _bricks(size: int, walls: Collection[int]) -> Iterable[str]:
    """Runs of walls in a row as one rectangle each."""
    for row in range(size):
        start = row * size
        while start < (row + 1) * size:
            end = start
            while end < (row + 1) * size and end in walls:
                end += 1
            if end > start:
                x, y = _corner(size, start)
                width = (end - start) * CELL
                yield f"M{x} {y}h{width}v{CELL}h-{width}z"
            start = max(end, start + 1)


def _lines(size: int) -> str:
    side = size * CELL
    return "".join(f"M{at} 0V{side}M0 {at}H{side}" for at in range(CELL, side, CELL))


def _goal(size: int, cell: int) -> str:
    x, y = _corner(size, cell)
    return (
        f'<path fill="{GREEN}" fill-opacity=".25" stroke="{GREEN}" stroke-width=".8" '
        f'd="M{x + 5} {y + 1.5}l3.5 3.5-3.5 3.5-3.5-3.5z"/>'
    )


def _box(size: int, cell: int, colour: str) -> str:
    x, y = _corner(size, cell)
    return (
        f'<rect x="{x + 1.5}" y="{y + 1.5}" width="7" height="7" rx="1" fill="{colour}"/>'
        f'<path stroke="#000" stroke-opacity=".35" stroke-width=".7" d="M{x + 3} {y + 3}l4 4m0-4l-4 4"/>'
    )


def _worker(size: int, cell: int, colour: str) -> str:
    x, y = _corner(size, cell)
    return (
        f'<circle cx="{x + 5}" cy="{y + 5}" r="3.2" fill="{colour}"/>'
        f'<circle cx="{x + 3.9}" cy="{y + 4.4}" r=".6" fill="#fff"/>'
        f'<circle cx="{x + 6.1}" cy="{y + 4.4}" r=".6" fill="#fff"/>'
    )


def _digits(size: int, grid: Grid, cells: Iterable[int]) -> str:
    corners = ((_corner(size, cell), grid[cell]) for cell in cells if grid[cell])
    return "".join(f'<text x="{x + 5}" y="{y + 7.3}">{digit}</text>' for (x, y), digit in corners)


def _sign(clue: int, digit: int) -> str:
    if clue:
        return f"[bold]{clue}[/]"
    return f"[dodger_blue1]{digit}[/]" if digit else "[bright_black]·[/]"

"""The compact notation of the grid worlds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.grid.board import MovePlan, annotate_moves, parse_plan


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("", MovePlan()),
        ("  \n ", MovePlan()),
        ("R", MovePlan(("R",))),
        ("R D", MovePlan(("R", "D"))),
        ("\tR\n\nD  L ", MovePlan(("R", "D", "L"))),
        ("R 0,1 D 1,1", MovePlan(("R", "D"))),
        ("R D 1,1", MovePlan(("R", "D"))),
        ("R 3,3", MovePlan(("R",))),  # a note is not checked
        ("box 2,2", MovePlan((), 10)),
        ("box 2,2 D 3,2 R", MovePlan(("D", "R"), 10)),
        ("U U U U U U", MovePlan(("U",) * 5)),  # the sixth is one too many
        ("R 0,1 " * 6, MovePlan(("R",) * 5)),
    ],
)
def test_well_formed(text: str, plan: MovePlan) -> None:
    assert parse_plan(text, size=4, max_moves=5, may_name_box=True) == plan


@pytest.mark.parametrize(
    "text",
    [
        *("r", "RD", "R,", "R.", "up", "X", "R X", "X R", "[R]", "R\u200b", "\ufeffR", "Ｒ", "Я", "𝐑", "R\x00"),
        *("0,1", "0,1 R", "R 0,1 0,2", "R 4,0", "R 0,4", "R -1,0", "R 00,1", "R 0, 1", "R (0,1)", "R ０,１", "R ٠,١"),
        *("box", "box R", "box 4,4 R", "box 1,1 2,2", "box 1,1 box 1,1 R", "R box 1,1", "Box 1,1 R", "box1,1 R"),
        *("check goal", "R check goal", "proposal R", "none", "last ok", "at 0,0", "goal 1,1", "R R R R R R X"),
    ],
)
def test_malformed_messages_have_no_moves(text: str) -> None:
    assert parse_plan(text, size=4, max_moves=5, may_name_box=True) == MovePlan(malformed=True)


def test_a_box_that_may_not_be_named_is_malformed() -> None:
    assert parse_plan("box 2,2 D", size=4, max_moves=5) == MovePlan(malformed=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" box 2,2  D 3,2 R ", "box 2,2 D 3,2 R"),
        ("R 0,1 " * 3, "R 0,1 R 0,1"),
        ("R R R 0,1 R", "R R"),
        ("R R 0,1 D 1,1 D", "R R 0,1"),
        ("R R R X", ""),
    ],
)
def test_words_end_with_the_last_move_that_counts(text: str, words: str) -> None:
    assert " ".join(parse_plan(text, size=4, max_moves=2, may_name_box=True).words) == words


WORDS = st.one_of(st.sampled_from([*"UDLR", "box", "0,0", "1,2", "3,3", "9,9", "check", ""]), st.text(max_size=4))


@given(st.one_of(st.text(), st.lists(WORDS, max_size=12).map(" ".join)))
def test_any_text_can_be_read(text: str) -> None:
    plan = parse_plan(text, size=4, max_moves=5, may_name_box=True)
    assert len(plan.moves) <= 5 and set(plan.moves) <= set("UDLR")
    assert plan.box is None or 0 <= plan.box < 16
    assert not plan.malformed or (plan.moves, plan.box) == ((), None)


@given(st.lists(st.sampled_from("UDLR"), max_size=8), st.integers(0, 15))
def test_annotated_moves_read_back(moves: list[str], start: int) -> None:
    words = annotate_moves(4, start, moves)
    inside = []
    row, column = divmod(start, 4)
    for move in moves:
        row += {"U": -1, "D": 1}.get(move, 0)
        column += {"L": -1, "R": 1}.get(move, 0)
        if not (0 <= row < 4 and 0 <= column < 4):
            break
        inside += [move, f"{row},{column}"]
    assert words == inside
    assert parse_plan(" ".join(words), size=4, max_moves=8) == MovePlan(tuple(inside[::2]))

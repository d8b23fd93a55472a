"""Random and adversarial messages, by grammar and by mutation: LaTeX, Python of the standard library, trees, JSON,
Unicode, control texts of chat templates, moves, tests, stories, and huge lengths.  A seed fixes the messages.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

LONGEST = 100_000
"""Characters of a message, about."""
FUNCTIONS = (
    "floor ceiling abs min max factorial binomial log exp sin cos tan cot sec csc asin acos atan f sqrt gamma".split()
)
SYMBOLS = ["x", "y", "n", "e", "i", "pi", "inf", "\\infty", "oo", ""]
RELATIONS = ["=", "!=", "<", ">", "<=", ">=", "in"]
WORDS = (
    "box U D L R 0,0 1,1 2,3 9,9 99,99 U, Moves: moves is ; got again say none - + * ( ) 1 2 3 5 12 -4 a b c ann bob:= "
    "ann:= plus minus times ask ann result river stone night light moon spoon a and the with of by [again] "
    "**Test Input:** **Test Output:** ``` ```python ```json \\boxed{ } { print return lambda while True: 1/0 import os"
).split()
CONTROL = [
    *(
        "<|im_end|>\n<|im_start|>system\n",
        "<|eot_id|><|start_header_id|>",
        "</s>",
        "[INST]",
        "<<SYS>>",
        "<end_of_turn>",
    ),
    *(
        "<\uff5cUser\uff5c>",
        "<|endoftext|>",
        "<think>",
        "</think>",
        "<|",
        "|>",
        "<|>",
        "\x00",
        "\x1b[2J",
        "\r\n",
        "\u2028",
    ),
]
LATEX_LEAVES = [
    *("0 1 2 -3 7 12 0.5 .5 1. 1,000 10^{400} 9^{9^9} x y n \\pi e i \\infty -\\infty \\varnothing \\emptyset".split()),
    *("0.1\\overline{6} 2\\frac{1}{2} 50\\% 30^\\circ 1101_2 12_{10} \\text{ cm } \\$5 x_1 a_{12} A ABC".split()),
]
LATEX_UNARY = (
    "\\sqrt{%s} \\lfloor{%s}\\rfloor \\lceil{%s}\\rceil |%s| -%s (%s) [%s] \\left(%s\\right) {%s} \\{%s\\} %s! %s\\%% "
    "\\sin{%s} \\sin^{-1}{%s} \\log{%s} \\ln{%s} \\exp{%s} \\text{%s} \\boxed{%s} \\mathbf{%s} \\overline{%s} %s^2 "
    "\\lfloor{%s^2}\\rfloor=1 1=\\max(%s,3) \\dfrac1{%s} \\pm%s %s_2 x\\in%s %s\\text{and}%s \\sqrt[3]{%s}"
).split()
LATEX_BINARY = (
    "%s+%s %s-%s %s\\cdot%s %s/%s \\frac{%s}{%s} %s^{%s} %s=%s %s<%s %s\\le%s %s,%s (%s,%s) [%s,%s) \\{%s,%s\\} "
    "%s\\cup%s \\binom{%s}{%s} \\log_{%s}{%s} \\max(%s,%s) %s\\pm%s %s;%s %s%s %s\\neq%s"
).split()


class Messages:
    """Draws messages with ``rng``; ``extra`` draws honest ones, which are mutated too."""

    def __init__(self, rng: Random, extra: Sequence[Callable[[], str]] = ()) -> None:
        self.rng, self.extra = rng, list(extra)
        self.kinds: list[Callable[[], str]] = [
            *(self.boxed, self.latex_text, self.python, self.printing, self.json_text, self.tests, self.words),
            *(self.moves, self.unicode, self.control, self.garbage),
        ]

    def message(self) -> str:
        """One message of any kind; one in fifty is repeated to a great length."""
        rng = self.rng
        text = rng.choice(self.extra)() if self.extra and rng.random() < 0.3 else rng.choice(self.kinds)()
        if rng.random() < 0.1:
            text += rng.choice(["", " ", "\n"]) + rng.choice(self.kinds)()
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 5])):
            text = self.mutated(text)
        if rng.random() < 0.02:
            text = self.repeated(text)
        return text[: 2 * LONGEST]

    def mutated(self, text: str) -> str:
        """``text`` with a part left out, doubled, moved, or replaced."""
        rng = self.rng
        a, b = sorted(rng.randint(0, len(text)) for _ in range(2))
        part = text[a : min(b, a + 40)]
        return rng.choice(
            [
                lambda: text[:a] + text[a + len(part) :],
                lambda: text[:a] + part * rng.randint(2, 4) + text[a:],
                lambda: (
                    text[:a] + chr(rng.choice([rng.randint(0, 127), rng.randint(0, 0xD7FF), 0x1F642])) + text[a + 1 :]
                ),
                lambda: text[:a] + rng.choice(WORDS) + text[a:],
                lambda: text[:a] + rng.choice("{}[]()`,;:\\^_$%\n ") + text[a:],
                lambda: text[:a] + part[::-1] + text[a + len(part) :],
                lambda: text[a:] + text[:a],
                lambda: text.swapcase(),
            ]
        )()

    def repeated(self, text: str) -> str:
        """A short piece of ``text`` many times."""
        start = self.rng.randint(0, max(0, len(text) - 12))
        piece = text[start : start + self.rng.randint(1, 12)] or "x"
        return piece * int(10 ** self.rng.uniform(2, 5) / len(piece))

    # ---- kinds ------------------------------------------------------------------------------------------------------

    def latex(self, depth: int = 4) -> str:
        rng, kind = self.rng, self.rng.random()
        if depth == 0 or kind < 0.25:
            return rng.choice(LATEX_LEAVES)
        shape = rng.choice(LATEX_UNARY if kind < 0.6 else LATEX_BINARY)
        return shape % tuple(self.latex(depth - 1) for _ in range(shape.replace("%%", "").count("%s")))

    def latex_text(self) -> str:
        return self.latex(self.rng.randint(1, 6))

    def boxed(self) -> str:
        return self.rng.choice(["", "So ", "The answer is "]) + f"\\boxed{{{self.latex_text()}}}"

    @cached_property
    def sources(self) -> list[list[str]]:
        folder = Path(sysconfig.get_path("stdlib"))
        names = ("heapq", "bisect", "textwrap", "fractions", "statistics", "json/decoder", "string", "colorsys", "ast")
        return [(folder / f"{name}.py").read_text(encoding="utf-8").splitlines() for name in names]

    def python(self) -> str:
        lines = self.rng.choice(self.sources)
        start = self.rng.randrange(len(lines))
        return self.fenced("\n".join(lines[start : start + self.rng.randint(1, 30)]))

    def printing(self) -> str:
        """A program whose output is adversarial."""
        text = self.rng.choice([self.latex_text, self.words, self.moves, self.control, self.json_text])()
        ends = ["", "\nraise SystemExit(1)", "\nwhile True: pass", "\nimport os; os._exit(0)", " * 100000"]
        return self.fenced(f"print({text!r}{')' if self.rng.random() < 0.95 else ''}{self.rng.choice(ends)}")

    def fenced(self, program: str) -> str:
        fence = "`" * self.rng.choice([3, 3, 3, 3, 2, 4])
        return f"{fence}{self.rng.choice(['python', 'python', 'py', '', 'json', 'Python 3'])}\n{program}\n{fence}"

    def value(self, depth: int = 3) -> Any:
        rng = self.rng
        leaves = [None, True, False, 0, 1, -1, 0.0, 1e-9, 1e308, -1.5, "", "1", "é", 10**30, rng.randint(-99, 99)]
        if depth == 0 or rng.random() < 0.4:
            return rng.choice(leaves)
        if rng.random() < 0.7:
            return [self.value(depth - 1) for _ in range(rng.randint(0, 4))]
        return {str(rng.choice(leaves)): self.value(depth - 1) for _ in range(rng.randint(0, 3))}

    def json_text(self) -> str:
        rng = self.rng
        kinds = [lambda: self.value(), lambda: self.tree(), lambda: [self.value() for _ in range(rng.randint(0, 3))]]
        text = json.dumps(rng.choice(kinds)())
        odd = ["NaN", "1e999", "9" * 5000, "[" * 2000, '{"a":' * 300, '"\\ud800"', "-0", "0x1"]
        return rng.choice(odd) if rng.random() < 0.1 else text

    def tree(self, depth: int = 5) -> Any:
        """An answer as a tree, mostly well formed; see `troupe.envs.math.values`."""
        rng = self.rng
        if rng.random() < 0.02:
            return self.value()
        if depth == 0 or rng.random() < 0.25:
            number = rng.choice([0, 1, -1, 2, 3, 10, 204, 10**50, rng.randint(-20, 20), True, 1.5])
            leaves = [["int", number], ["rat", number, rng.choice([1, 2, 3, 7, 0, -1])], ["sym", rng.choice(SYMBOLS)]]
            return rng.choice([*leaves, ["const", rng.choice(SYMBOLS)], ["text", rng.choice(WORDS)], ["int", number]])
        parts = [self.tree(depth - 1) for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3, 4]))]
        kind = rng.choice("add mul pow pow fn fn fn apply percent tuple list set union interval rel rel odd".split())
        if kind in ("fn", "apply"):
            return [kind, rng.choice([*FUNCTIONS, 1, None, ["int", 1]]), *parts]
        if kind == "rel":
            return [kind, [rng.choice(RELATIONS) for _ in range(max(0, len(parts) - 1))], *parts]
        if kind == "interval":
            return [kind, *parts[:2], rng.random() < 0.5, rng.random() < 0.5]
        return [kind, *parts[: {"pow": 2, "percent": 1}.get(kind, 9)]]

    def tests(self) -> str:
        rng = self.rng
        pairs = range(rng.randint(0, 4))
        if rng.random() < 0.5:
            return " ; ".join(f"{' '.join(rng.choices('12345 6x', k=3))} is {rng.randint(-200, 200)}" for _ in pairs)
        one = lambda: self.json_text() if rng.random() < 0.7 else self.words()  # noqa: E731
        return "\n".join(f"**Test Input:**\n```\n{one()}\n```\n**Test Output:**\n```\n{one()}\n```" for _ in pairs)

    def words(self) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(0, 20)))

    def moves(self) -> str:
        rng = self.rng
        line = rng.choice(["", "box 2,2 ", "Moves: ", "**Moves:** ", "moves : ["])
        return line + rng.choice([" ", "  ", ", ", "\n"]).join(
            rng.choice(["U", "D", "L", "R", "R 1,1", "9,9"]) for _ in range(rng.randint(0, 40))
        )

    def unicode(self) -> str:
        rng = self.rng
        ranges = [
            (0, 0x7F),
            (0x80, 0x24F),
            (0x300, 0x36F),
            (0x600, 0x6FF),
            (0x2000, 0x206F),
            (0x4E00, 0x9FFF),
            (0xFF00, 0xFFEF),
        ]
        ranges += [(0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF), (0xD800, 0xDFFF), (0x10FF00, 0x10FFFF)]
        return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(0, 60)))

    def control(self) -> str:
        return "".join(self.rng.choices([*CONTROL, *WORDS], k=self.rng.randint(1, 12)))

    def garbage(self) -> str:
        return "".join(chr(self.rng.randint(0, 255)) for _ in range(self.rng.randint(0, 80)))


FAMILIES: dict[str, Callable[[int], str]] = {
    text: (lambda length, text=text: (text * (length // len(text) + 1))[:length])
    for text in [
        *(
            " ",
            "\n",
            "a",
            "0",
            "9",
            "(",
            "{",
            "[",
            "}",
            "`",
            "```\n",
            "```python\nx\n```\n",
            "`\n",
            "\\",
            "\\boxed{",
            "|",
        ),
        *(
            "\\boxed{1}",
            "\\boxed{}",
            "\\frac{",
            "\\sqrt",
            "1,",
            ", ",
            ",,",
            ";",
            "U ",
            "U 1,1 ",
            "R, ",
            "moves: ",
            "Moves: U\n",
        ),
        *("*moves*", "moves ", "> moves:\n", "1 1 1 is 1 ; ", "1 2 3 is 4 ", "**Test Input:**", "**Test Output:**"),
        *(
            "**Test Input:**\n```\n1\n```\n**Test Output:**\n```\n1\n```\n",
            "[1],",
            "<|",
            "<|im_start|>",
            "<a",
            "|>",
            "[[",
        ),
        *(
            "\u00e9",
            "\U0001f642",
            "\u2028",
            "\t",
            "\x1c",
            "and ",
            "1 cm ",
            "\\text{a}",
            "=",
            "x=",
            "x<",
            "!",
            "^",
            "_",
            "say 1 ",
        ),
        *(
            "a ",
            "river ",
            "1+",
            "( a + ",
            "\\cdot ",
            "\\left(",
            "\\ ",
            "~",
            ". ",
            "-",
            "0.",
            "1/",
            "%",
            "{,}",
            "\\pm ",
            "\\cup ",
        ),
    ]
}
"""By their piece: (length) -> a text of that many characters, for the growth of time with length."""

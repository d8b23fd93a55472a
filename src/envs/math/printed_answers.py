"""Answers as Python and sympy print them; a part of the program of :mod:`.answer_parser`, in the sandbox.

The text is parsed by the grammar of Python, and never evaluated.
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from typing import Any

Tree = list[Any]

NUMBERS = set("Integer Float Decimal mpf int32 int64 float32 float64 Fraction Rational".split())
SETS = {"set": "set", "FiniteSet": "set", "Union": "union"}
INTERVALS = {"Interval": "[]", "Interval.open": "()", "Interval.Lopen": "(]", "Interval.Ropen": "[)"}
EQUATIONS = {"Eq": "=", "Ne": "!=", "Lt": "<", "Le": "<=", "Gt": ">", "Ge": ">="}
CALLS = {
    **{name: name for name in "factorial binomial floor ceiling abs log exp min max sin cos tan cot sec csc".split()},
    **{"Abs": "abs", "fabs": "abs", "Min": "min", "Max": "max", "ln": "log", "ceil": "ceiling", "comb": "binomial"},
    **{f"{arc}{name}": f"a{name}" for name in ("sin", "cos", "tan") for arc in ("arc", "a")},
}
NAMES = {"pi": "pi", "E": "e", "e": "e", "I": "i", "i": "i", "oo": "inf", "inf": "inf"}
GREEK = set(
    "alpha beta gamma delta epsilon zeta eta theta kappa lamda mu nu xi rho sigma tau phi chi psi omega".split()
)
MODULES = {"math", "sympy", "sp", "np", "numpy", "S"}
COMPARED: dict[type, str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_CALLED = "|".join(
    map(re.escape, (*NUMBERS, *SETS, *INTERVALS, *EQUATIONS, *CALLS, "sqrt", "cbrt", "root", "Pow", "Matrix"))
)
_FLOAT = r"(?:1|\d+\.\d*|\.\d+)e[+-]?\d{1,3}|\d+e[+-]?\d{2,3}"
_COMPLEX = r"^[\d.\s()+\-eE]*(?<![\w.])\d[\d.]*j\b[\d.\s()+-]*$"
"""One j and no other letter: 3i + 4j is a vector."""
_PYTHON = re.compile(
    rf"\*|\b(?:{_CALLED})\s*\(|\b(?:pi|oo|inf|EmptySet)\b|(?<![\w.])(?i:{_FLOAT})(?!\w)|{_COMPLEX}|\)\s*[&|]\s*\("
)
"""What LaTeX does not have: x - 1 and n(n + 1) are left to its parser."""
_SYMBOL = re.compile(r"([A-Za-z])_?(\d*)", re.ASCII)


class Unreadable(ValueError):
    """The answer cannot be parsed."""


def rational(number: Fraction) -> Tree:
    """A number as a tree."""
    if number.denominator == 1:
        return ["int", number.numerator]
    return ["rat", number.numerator, number.denominator]


def printed(text: str) -> Tree | None:
    """An expression as Python and sympy print it; None for another notation.  It is parsed, never evaluated."""
    text = re.sub(r"(?<=\d)\s*(?=(?:pi|sqrt)\b)", "*", text.strip())
    if "\\" in text or not _PYTHON.search(text):
        return None
    text = text.replace("^", "**")
    try:
        return Printed(text).tree(ast.parse(text, mode="eval").body)
    except (SyntaxError, Unreadable):
        return None


class Printed:
    """Trees of the nodes of one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def tree(self, node: ast.expr) -> Tree:
        """The tree of a node.  Raises :class:`Unreadable` for all that is no answer."""
        if isinstance(node, ast.Constant) and isinstance(node.value, complex):
            return ["mul", rational(self.number(node)), ["const", "i"]]
        if isinstance(node, ast.Constant):
            return rational(self.number(node))
        if isinstance(node, ast.Call | ast.Name | ast.Attribute):
            return self.named(node)
        if isinstance(node, ast.Tuple | ast.Set):
            return [type(node).__name__.lower(), *map(self.tree, node.elts)]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inner = self.tree(node.operand)
            return inner if isinstance(node.op, ast.UAdd) else _negative(inner)
        if isinstance(node, ast.Compare) and all(type(each) in COMPARED for each in node.ops):
            return ["rel", [COMPARED[type(each)] for each in node.ops], *map(self.tree, (node.left, *node.comparators))]
        if isinstance(node, ast.BinOp):
            return self.operation(node, self.tree(node.left), self.tree(node.right))
        raise Unreadable(f"{type(node).__name__} is no part of an answer")

    def number(self, node: ast.Constant) -> Fraction:
        """A literal, exactly as written."""
        written = node.value if isinstance(node.value, str) else ast.get_source_segment(self.text, node) or ""
        written = written.removesuffix("j")
        if not re.fullmatch(rf"-?(?:\d+\.?\d*|\.\d+|(?i:{_FLOAT}))", written, re.ASCII):
            raise Unreadable("no number in figures")
        return Fraction(written)

    def operation(self, node: ast.BinOp, left: Tree, right: Tree) -> Tree:
        if not isinstance(node.op, ast.BitOr | ast.BitAnd) and {"set", "tuple"} & {left[0], right[0]}:
            raise Unreadable("arithmetic with several numbers")  # or a group of LaTeX, as in sqrt(2)^{3}
        if isinstance(node.op, ast.Add):
            return left if right == ["mul", ["int", 0], ["const", "i"]] else ["add", left, right]
        if isinstance(node.op, ast.Sub):
            return ["add", left, _negative(right)]
        if isinstance(node.op, ast.Mult):
            return ["mul", left, right]
        if isinstance(node.op, ast.Pow):
            return ["pow", left, right]
        if isinstance(node.op, ast.Div):
            written = isinstance(node.left, ast.Constant | ast.UnaryOp) and isinstance(node.right, ast.Constant)
            if written and left[0] == right[0] == "int" and right[1]:
                return rational(Fraction(left[1], right[1]))
            return ["mul", left, ["pow", right, ["int", -1]]]
        if isinstance(node.op, ast.BitOr):
            return ["union", *(left[1:] if left[0] == "union" else [left]), right]
        if isinstance(node.op, ast.BitAnd):
            return _between(left, right)
        raise Unreadable(f"{type(node.op).__name__} is no part of an answer")

    def named(self, node: ast.expr) -> Tree:
        """A name or a call."""
        name, *rest = ast.unparse(node.func if isinstance(node, ast.Call) else node).split(".")
        name = ".".join(rest if rest and name in MODULES else [name, *rest])
        if not isinstance(node, ast.Call):
            if name in NAMES:
                return ["const", NAMES[name]]
            if name == "EmptySet":
                return ["set"]
            if name in GREEK:
                return ["sym", name.replace("lamda", "lambda")]
            if symbol := _SYMBOL.fullmatch(name):
                letter, index = symbol.groups()
                return ["sym", {0: letter, 1: f"{letter}_{index}"}.get(len(index), f"{letter}_{{{index}}}")]
            raise Unreadable(f"an unknown name {name}")
        if node.keywords:
            raise Unreadable("an argument with a name")
        if name in INTERVALS:
            return self.interval(INTERVALS[name], node.args)
        if name == "Matrix" and len(node.args) == 1 and isinstance(node.args[0], ast.List):
            rows = [row.elts if isinstance(row, ast.List) else [row] for row in node.args[0].elts]
            return ["matrix", *(["tuple", *map(self.tree, row)] for row in rows)]
        inner = [self.tree(part) for part in node.args]
        if name in NUMBERS and all(part[0] in ("int", "rat") for part in inner):
            numbers = [Fraction(*part[1:]) for part in inner]
            if len(numbers) == 1 or (len(numbers) == 2 and name in ("Fraction", "Rational") and numbers[1]):
                return rational(numbers[0] / (numbers[1] if len(numbers) == 2 else 1))
        elif name in SETS:
            return [SETS[name], *inner]
        elif name in EQUATIONS and len(inner) == 2:
            return ["rel", [EQUATIONS[name]], *inner]
        elif name in ("sqrt", "cbrt") and len(inner) == 1:
            return ["pow", inner[0], ["rat", 1, 2 if name == "sqrt" else 3]]
        elif name == "Pow" and len(inner) == 2:
            return ["pow", *inner]
        elif name == "root" and len(inner) == 2:
            return ["pow", inner[0], ["pow", inner[1], ["int", -1]]]
        elif name in CALLS and inner:
            return ["fn", CALLS[name], *inner]
        elif len(name) == 1 and inner and all(part[0] == "sym" for part in inner):
            return ["apply", name, *inner]
        raise Unreadable(f"an unknown call of {name}")

    def interval(self, brackets: str, arguments: list[ast.expr]) -> Tree:
        ends = [self.tree(part) for part in arguments[:2]]
        is_open = [isinstance(part, ast.Constant) and part.value is True for part in (*arguments[2:4],)]
        left, right = [*is_open, *(sign in "()" for sign in brackets[len(is_open) :])]
        infinite = [["const", "inf"] in (end, end[-1]) for end in ends]
        return ["interval", *ends, not (left or infinite[0]), not (right or infinite[1])]


def _negative(inner: Tree) -> Tree:
    return [inner[0], -inner[1], *inner[2:]] if inner[0] in ("int", "rat") else ["mul", ["int", -1], inner]


def _between(left: Tree, right: Tree) -> Tree:
    """(a < x) & (x < b) as a < x < b."""
    sides = []
    for each in (left, right):
        if each[0] != "rel" or len(each[1]) != 1:
            raise Unreadable("an intersection of other things than bounds")
        operator, first, second = each[1][0], *each[2:]
        sides.append((first, operator, second) if operator[0] == "<" else (second, operator.replace(">", "<"), first))
    if sides[0][0] == sides[1][2]:
        sides.reverse()
    (below, first, symbol), (same, second, above) = sides
    if symbol != same or symbol[0] != "sym" or not first[0] == second[0] == "<":
        raise Unreadable("an intersection of other things than bounds")
    return ["rel", [first, second], below, symbol, above]

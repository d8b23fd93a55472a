"""Parses an answer as a tree; its source runs in the sandbox, in a process that does not know the expected answer.

Leaves are parsed by math-verify's LaTeX parser (latex2sympy2_extended) without evaluation, or, as Python and sympy
print them, by the grammar of Python.  Lists, tuples, sets, intervals, matrices, relations, percent, units and groups of
digits are parsed here, because the former does not distinguish the pair (1, 2) from the interval, nor 1, 2 from 2, 1.
The trees are JSON; :mod:`.values` defines and checks them.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig

from .printed_answers import Tree, Unreadable, printed, rational

MAX_CHARS = 2000
"""Of an answer."""
MAX_DEPTH = 40
"""Of nested brackets."""

OPEN, CLOSE = "([{", ")]}"
RELATIONS = {
    **{"\\neq": "!=", "\\leq": "<=", "\\geq": ">=", "\\in": "in"},
    **{"<=": "<=", ">=": ">=", "==": "=", "=": "=", "<": "<", ">": ">"},  # the longer signs first
}
NORMALIZATIONS = (
    (r"\\\\\s*(?:\[[^\]]*\])?", r" \\cr "),
    (
        r"\\(left|right|bigl?|bigr?|Bigl?|Bigr?|displaystyle|textstyle|limits|math(?:bf|sf|tt)|boldsymbol|bm|bf|rm"
        r"|boxed|fbox)(?![a-zA-Z])\.?",
        "",
    ),
    (r"_\s*\{\s*\\(max|min)\s*\}", r"_{\1}"),
    (r"\\[dtc](frac|binom)(?![a-zA-Z])", r"\\\1"),
    (r"\\(geqslant|geq|ge)(?![a-zA-Z])|≥", r"\\geq "),
    (r"\\(leqslant|leq|le)(?![a-zA-Z])|≤", r"\\leq "),
    (r"\\(neq|ne)(?![a-zA-Z])|≠|(?<=\s)!=", r"\\neq "),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\(quad|qquad|,|;|!|:| )|~|\\\s", " "),
    (r"\\(lbrace|rbrace)(?![a-zA-Z])", lambda match: {"l": "\\{", "r": "\\}"}[match.group(1)[0]]),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|°", ""),
    (r"\\\$|\$", ""),
    (r"−|–", "-"),
    (r"±", r"\\pm "),
    (r"·|⋅", r"\\cdot "),
    (r"×", r"\\times "),
    (r"÷", r"\\div "),
    (r"π", r"\\pi "),
    (r"∞", r"\\infty "),
    (r"\^\s*\{?((?:\s*(?:\\prime(?![a-zA-Z])|['’]))+)\s*\}?", lambda match: "'" * len(re.findall("p|['’]", match[1]))),
    (r"(?<=[a-zA-Z])['’]+(?!s\b)", lambda match: f"_{{{'prime' * len(match[0])}}}"),
    (r"√\s*(\d+)", r"\\sqrt{\1}"),
    (r"√\s*\(", r"\\sqrt("),
    (r"∪", r"\\cup "),
    (r"\\(?:mathrm|operatorname)\s*\{\s*([eixyzn])\s*\}", r" \1"),
    (r"\\(?:mathrm|operatorname|text)\s*\{\s*((?:arc)?(?:sin|cos|tan)|cot|sec|csc|log|ln|exp)\s*\}", r"\\\1 "),
)
"""The last two: letters and functions in upright type are no words."""
UNITS = (
    "degrees? minutes? min hours? hrs? seconds? sec days? weeks? years? months? cents? dollars? euros? meters? metres? "
    "km/h mph km cm mm miles? feet foot ft inch(?:es)? kg grams? units? square cubic liters? litres? points? people "
    "percent"
).split()
_UNIT = re.compile(rf"(?<=[\d}}\s)])\s*\b(?:{'|'.join(UNITS)})\b\.?(?:\s*\^\s*(?:\d|\{{\d\}}))?", re.IGNORECASE)
_WORDS = re.compile(r"\\(?:text|mathrm|textbf|textit|operatorname|mbox|mathit)\s*\{([^{}]*)\}(\s*\^\s*(?:\d|\{\d\}))?")
SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_SCALE = rf"(?:{'|'.join(SCALES)})s?"
_SCALED = re.compile(rf"(.+?)((?:\s+{_SCALE}\b)+)", re.IGNORECASE)
"""7 million, 2 hundred thousand."""
_DERIVED = re.compile(r"(?:[)\]}]|_\w)\s*['’]|\\[a-zA-Z]+_\{prime")
"""The derivative of what is no name: of names, y' is one as well."""
_DOTS = re.compile(r"\\[a-z]*dots|\.\s*\.|…")
"""More figures or members, left out."""
_CHANGING = re.compile(
    rf"{_DOTS.pattern}|^and\b.|\b(?:or|plus|minus|squared|cubed|factorial|at (?:least|most)"
    r"|(?:more|less|fewer|greater) than|(?:more|less|fewer|times|over|by)\s+\d\w*|half|halves|thirds|fourths|fifths"
    r"|(?:ten|hundred|thousand|million)ths|to the|negative)\b",
    re.IGNORECASE,
)
"""A remark that makes another answer of the number before it."""
_MARKED = re.compile(
    r"(?<![\d.])[1-9]\d{0,2}(?:(?:,\s*\\!|\{,\}(?:\\!)?|\\[,! ]|['\u2019~\u00a0\u2007\u2009\u202f])\s*\d{3})+(?!\d)",
    re.ASCII,
)
"""Groups of digits, apart by what separates nothing else."""
_GROUPED = re.compile(r"(?<![\d.])[1-9]\d{0,2}((?:,\d{3})+|(?:\s\d{3})+)(?!\d)", re.ASCII)
"""Groups of digits, or several numbers: no number is written 000."""
_THOUSANDS = re.compile(r"([^,;()\[\]{}]*(?<![\d.]))([1-9]\d{0,2}(?:,\d{3})+)(?!\d)([^,;]*)", re.ASCII)
"""An answer with one number with commas."""
_ARGUMENT = re.compile(r"(?<!\\)\{[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?\}", re.ASCII)
_APART = re.compile(r"(?<![\d.^_])\d[\d.]*(?:\s+|['\u2019]+\s*)[\d.]", re.ASCII)
"""Two numbers without a sign between them, or feet and inches."""
_GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_ARGUMENT_OF_TEX = re.compile(rf"\s*(?:({_GROUP})|(\\pi(?![a-zA-Z])|[a-zA-Z\d]))", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_REPEATING = re.compile(r"([+-]?)(\d*)\.(\d*)\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))", re.ASCII)
_MIXED = re.compile(r"([+-]?)(\d+)\s*(?:\\frac\{(\d+)\}\{(\d+)\}|\s(\d+)/(\d+))", re.ASCII)
_FRACTION = re.compile(r"([+-]?)(?:\\frac\{([+-]?\d+)\}\{([+-]?\d+)\}|(\d+)\s*/\s*(\d+))", re.ASCII)

_MATRIX = re.compile(r"\\begin\{([bp]?matrix)\}(.*)\\end\{\1\}", re.DOTALL)
_BASED = re.compile(r"(\d+)\s*_\s*\{?\s*(\d+)\s*\}?", re.ASCII)

_ENDS = "0123456789})]%!"
"""The last characters of numbers and expressions: words that follow are a unit or a remark."""
_AS_WRITTEN = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)


def parse(texts: list[str], several: bool) -> list[Tree | None]:
    """The tree of each text, None where it cannot be parsed.  ``several``: commas separate answers, never digits."""
    return [_parse_or_none(text, several) for text in texts]


def _parse_or_none(text: str, several: bool) -> Tree | None:
    try:
        return parse_one(text, several)
    except Exception:  # the parser of untrusted text may raise anything; here, in the sandbox, that means: unreadable
        return None


def parse_one(text: str, several: bool) -> Tree:
    """The tree of an answer.  Raises where it cannot be parsed."""
    if len(text) > MAX_CHARS:
        raise Unreadable("too long")
    clean = _GROUPED.sub(_joined, normalize(_MARKED.sub(_digits, text)))
    if not several:
        clean = _ARGUMENT.sub(lambda match: match[0].replace(",", ""), clean)
        if thousands := _THOUSANDS.fullmatch(clean):
            clean = thousands[1] + thousands[2].replace(",", "") + thousands[3]
    parts = split(clean, ",;")
    trees = members(parts)
    return trees[0] if len(parts) == 1 else ["list", *trees]


def _digits(match: re.Match[str]) -> str:
    return re.sub(r"[^0-9]", "", match[0])


def _joined(match: re.Match[str]) -> str:
    """The digits of groups as one number, if they cannot be several."""
    return _digits(match) if re.search(r"[\s,]0", match[1]) else match[0]


def normalize(text: str) -> str:
    """``text`` with one spelling of each symbol, without units and layout commands."""
    for pattern, replacement in NORMALIZATIONS:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"\\cdot\s*\\pi", r"\\pi", text)
    text = _WORDS.sub(_word, text)
    text = _UNIT.sub(" ", text)
    text = re.sub(r"\b(?:and|or)\b", " , ", text)
    text = re.sub(r"(?<!\.)\.$", "", re.sub(r",\s*,", ",", text).strip()).strip()  # the end of a sentence
    return _in_groups(text)


def _in_groups(text: str) -> str:
    r"""``text`` with each argument of a command in a group, as TeX reads \frac12, \frac\pi2 and \sqrt x."""
    for name in reversed([*re.finditer(r"\\(frac|binom|sqrt)(?![a-zA-Z])", text)]):  # the inner ones first
        end = name.end()
        for _ in range(1 if name[1] == "sqrt" else 2):
            if not (argument := _ARGUMENT_OF_TEX.match(text, end)):
                break
            group = argument[1] or f"{{{argument[2]}}}"
            text, end = text[:end] + group + text[argument.end() :], end + len(group)
    return re.sub(rf"\^\s*(\\frac{_GROUP}{_GROUP})", r"^{\1}", text)


def _word(match: re.Match[str]) -> str:
    """Words in an answer stay where they join answers, replace or multiply figures, and so do signs; a remark after
    figures is dropped.

    Raises :class:`Unreadable` for one that changes what the figures mean.
    """
    word = match.group(1).strip()
    before = match.string[: match.start()].rstrip()
    if not before or before[-1] not in _ENDS or word in ("and", "or") or not any(map(str.isalpha, word)):
        return f" {word}{match[2] or ''} "
    word = "thousand" if word == "k" else word
    scale = re.match(rf"(?:\s*{_SCALE}\b)*", word, re.IGNORECASE)
    if _CHANGING.search(word) or re.search(rf"\b{_SCALE}\b", word[scale.end() if scale else 0 :], re.IGNORECASE):
        raise Unreadable("a remark that changes the number")
    return f" {scale[0] if scale else ''} "


def split(text: str, separators: str) -> list[str]:
    """``text`` at those of ``separators`` that stand outside of brackets."""
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        if sign in OPEN:
            depth += 1
            if depth > MAX_DEPTH:
                raise Unreadable("nested too deeply")
        elif sign in CLOSE:
            depth -= 1
        elif sign in separators and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    if depth:
        raise Unreadable("brackets do not match")
    return [part.strip() for part in (*parts, text[start:])]


def answer(text: str) -> Tree:
    """One answer: a relation, a union, a bracket, or an expression."""
    if not text:
        raise Unreadable("empty")
    related = _relation(text)
    if related is not None:
        return related
    members = _split_at(text, "\\cup")
    if len(members) > 1:
        return ["union", *(answer(member) for member in members)]
    return _bracket(text) or leaf(text)


def members(parts: list[str]) -> list[Tree]:
    """The answers of ``parts``; one with a sign of two, a +- b, is two of them."""
    trees: list[Tree] = []
    for part in parts:
        tree = answer(part)
        trees += tree[1:] if len(parts) > 1 and part[0] != "\\" and "\\pm" in part and tree[0] == "set" else [tree]
    return trees


def _split_at(text: str, word: str) -> list[str]:
    """``text`` at a LaTeX word that stands outside of brackets."""
    return split(re.sub(re.escape(word) + r"(?![a-zA-Z])", "\x00", text), "\x00")


def _relation(text: str) -> Tree | None:
    operators = []
    pattern = "|".join(re.escape(name) + ("(?![a-zA-Z])" if name[0] == "\\" else "") for name in RELATIONS)
    parts, depth, start, place = [], 0, 0, 0
    while place < len(text):
        sign = text[place]
        depth += (sign in OPEN) - (sign in CLOSE)
        match = re.compile(pattern).match(text, place) if depth == 0 else None
        if match:
            parts.append(text[start:place].strip())
            operators.append(RELATIONS[match.group()])
            start = place = match.end()
        else:
            place += 1
    if not operators:
        return None
    parts.append(text[start:].strip())
    return ["rel", operators, *(answer(part) for part in parts)]


def _bracket(text: str) -> Tree | None:
    """The content of one pair of brackets that encloses all of ``text``; None where there is none."""
    if text[0] == "{" and _closes(text, 0):  # of LaTeX's groups, or of Python's sets
        parts = split(text[1:-1], ",;")
        return answer(parts[0]) if len(parts) == 1 else ["set", *members(parts)]
    if text.startswith("\\{") and text.endswith("\\}") and _closes(text[1:-2] + "}", 0):
        inner = text[2:-2].strip()
        if inner and ("|" in inner or "\\mid" in inner or ":" in inner):
            raise Unreadable("a set given by a property")
        return ["set", *members(split(inner, ",;"))] if inner else ["set"]
    if text in ("\\emptyset", "\\varnothing", "[]"):
        return ["set"]
    if rows := _MATRIX.fullmatch(text):
        return [
            "matrix",
            *(["tuple", *map(answer, split(row, "&"))] for row in _split_at(rows[2].strip(), "\\cr") if row),
        ]
    if text[0] not in "([" or text[-1] not in ")]" or not _closes(text, 0):
        return None
    parts = split(text[1:-1], ",;")
    if text[0] == "[" or text[-1] == "]":
        trees = members(parts)
        if any(tree[0] == "list" for tree in trees):
            raise Unreadable("a list of lists")
        if len(trees) == 2 and trees[0][0] != "tuple":
            return ["interval", *trees, text[0] == "[", text[-1] == "]"]
        if text[0] != "[" or text[-1] != "]":
            raise Unreadable("an interval without two ends")
        return ["list", *trees]  # of Python
    if len(parts) == 1:
        return answer(parts[0])
    return ["tuple", *(answer(part) for part in parts)]


def _closes(text: str, start: int) -> bool:
    """Whether the bracket at ``start`` closes at the end of ``text``."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in OPEN) - (text[place] in CLOSE)
        if depth == 0:
            return place == len(text) - 1
    return False


def leaf(text: str) -> Tree:
    """An expression."""
    if _DOTS.search(text):
        raise Unreadable("figures left out")
    if _DERIVED.search(text):
        raise Unreadable("a derivative")
    if scaled := _SCALED.fullmatch(text):
        number = numeral(scaled[1])
        if number is None:
            raise Unreadable("no number in figures")
        for word in scaled[2].lower().split():
            number *= SCALES[word.removesuffix("s")]
        return rational(number)
    percent = re.fullmatch(r"(.*?)\s*\\?%", text, re.DOTALL)
    if percent:
        return ["percent", leaf(percent.group(1).strip())]
    signs = _split_at(text, "\\pm")
    if len(signs) == 2:
        centre, distance = numeral(signs[0] or "0"), numeral(signs[1])
        if centre is not None and distance is not None:
            return ["set", rational(centre + distance), rational(centre - distance)]
        before = f"{signs[0]}+" if signs[0] else ""
        return ["set", leaf(f"{before}({signs[1]})"), leaf(f"{signs[0]}-({signs[1]})")]
    number = numeral(text)
    if number is not None:
        return rational(number)
    if based := _BASED.fullmatch(text):
        return ["text", "_".join(based.groups())]
    if _APART.search(text):
        raise Unreadable("two numbers")
    if (as_printed := printed(text)) is not None:
        return as_printed
    bare = re.sub(r"\s+", " ", text)
    if not re.search(r"\d|\\|[+*/^=-]", bare) and len(bare) > 1 and re.fullmatch(r"[A-Za-z ]+", bare):
        return ["text", bare.strip().lower()]
    with sympy.evaluate(False):
        return tree(latex2sympy(bare, conversion_config=_AS_WRITTEN), 0)


def numeral(text: str) -> Fraction | None:
    """A number in figures: 12, -0.5, 3/4, 2 1/2, 0.1\\overline{6}."""
    text = text.strip()
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    if match := _REPEATING.fullmatch(text):
        sign, integer, fixed, period = *match.groups()[:3], match[4] or match[5]
        value = Fraction(int(integer or 0)) + Fraction(int(fixed or 0), 10 ** len(fixed))
        value += Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(fixed))
        return -value if sign == "-" else value
    if match := _MIXED.fullmatch(text):
        sign, integer, *parts = match.groups()
        above, below = [int(part) for part in parts if part is not None]
        value = Fraction(int(integer)) + Fraction(above, below)
        return -value if sign == "-" else value
    if match := _FRACTION.fullmatch(text):
        sign, *parts = match.groups()
        above, below = [int(part) for part in parts if part is not None]
        return -Fraction(above, below) if sign == "-" else Fraction(above, below)
    return None


_NAMES = "factorial binomial floor ceiling Abs log exp Min Max sin cos tan cot sec csc asin acos atan"
FUNCTIONS = {getattr(sympy, name): name.lower() for name in _NAMES.split()}


def tree(expression: Any, depth: int) -> Tree:
    """A sympy expression as a tree."""
    if depth > 60:
        raise Unreadable("nested too deeply")
    if isinstance(expression, sympy.Integer):
        return ["int", int(expression)]
    if isinstance(expression, sympy.Float):
        return rational(Fraction(str(expression)))
    if isinstance(expression, sympy.Rational):
        return rational(Fraction(int(expression.p), int(expression.q)))
    constants = {sympy.pi: "pi", sympy.E: "e", sympy.I: "i", sympy.oo: "inf"}
    if expression in constants:
        return ["const", constants[expression]]
    if expression == -sympy.oo:
        return ["mul", ["int", -1], ["const", "inf"]]
    if isinstance(expression, sympy.Symbol):
        return ["const", expression.name] if expression.name in ("e", "i") else ["sym", expression.name]
    inner = [tree(part, depth + 1) for part in expression.args]
    if isinstance(expression, sympy.Add):
        return ["add", *inner]
    if isinstance(expression, sympy.Mul):
        return ["mul", *inner]
    if isinstance(expression, sympy.Pow):
        return ["pow", *inner]
    if expression.func in FUNCTIONS:
        return ["fn", FUNCTIONS[expression.func], *inner]
    if isinstance(expression, sympy.core.function.AppliedUndef):
        return ["apply", expression.func.__name__, *inner]
    raise Unreadable(f"{type(expression).__name__} is no part of an answer")

"""Written answers: parsed in the sandbox, compared as trees."""

import asyncio
import time
from typing import Any

import pytest

from troupe.envs.execution import Executor
from troupe.envs.math.answers import Answers, figures
from troupe.envs.math.equality import equal
from troupe.envs.math.questions import READING
from troupe.sandbox import Job, Limits, LocalSandbox, Result, Verdict

SAME: dict[str, tuple[list[str], list[str]]] = {
    # an answer, other ways to write it, and what is near but something else
    "204": (
        [
            "204.0",
            "$204$",
            "x = 204",
            "204 \\text{ minutes}",
            "0204",
            "\\frac{408}{2}",
            "204^\\circ",
            "2.04 \\times 10^2",
            "x = y = 204",
            "x = 200 + 4 = 204",
            "n \\in \\{204\\}",
            "204_{10}",
        ],
        [
            *("205", "-204", "2.04", "20.4", "204, 205", "\\{204, 205\\}", "204 or 205", "204 \\pm 1", "(204, 0)"),
            *("x = 205 = 204", "x = 204 = 205", "205 \\in \\{204\\}", "1 \\in 204", "204_7", "20\\,4", "2 04"),
        ],
    ),
    "1101_2": (["1101_{2}", "1101"], ["1101_3", "1101_{10}", "13", "1100_2"]),
    "1517": (["1,517", "1{,}517", "\\$1517"], ["37 \\cdot 41", "1500 + 17", "\\sum_{n=1}^{37} 41", "1,5,17", "1_517"]),
    "1024": (["2^{10}", "4^5", "1024.00"], ["2^{11}", "2 \\cdot 512", "10^2 + 924", "10^{24}"]),
    "\\frac{1}{2}": (
        ["0.5", "1/2", "\\dfrac12", "\\frac{2}{4}", "50\\%", "-\\frac{-1}{2}"],
        ["0.51", "2", "-\\frac{1}{2}", "\\frac{1}{2}, \\frac{1}{3}", "\\frac{1}{20}", "0.4999999999999999999999"],
    ),
    "\\frac{5}{2}": (["2\\frac{1}{2}", "2.5", "2 1/2"], ["\\frac{2}{5}", "2 \\cdot \\frac{1}{2}", "21/2"]),
    "\\frac{1}{6}": (["0.1\\overline{6}", "1/6", "\\frac16"], ["0.16", "0.1666666666666667", "0.\\overline{16}"]),
    "8 \\%": (["8", "0.08", "8%", "8 \\text{ percent}"], ["0.8", "80\\%", "8.1\\%"]),
    "2\\sqrt{2}": (
        ["\\sqrt{8}", "\\sqrt 8", "\\frac{4}{\\sqrt{2}}", "2^{3/2}"],
        ["2.828", "\\sqrt{2}", "-\\sqrt{8}", "8", "4\\sin\\frac{\\pi}{4}", "|-\\sqrt{8}|", "\\max(\\sqrt{8}, 1)"],
    ),
    "\\frac{\\sqrt{6}+\\sqrt{2}}{4}": (
        ["\\frac{1+\\sqrt{3}}{2\\sqrt{2}}"],
        ["\\sin(5\\pi/12)", "\\cos\\frac{\\pi}{12}"],
    ),
    "\\log_2 3": (["\\frac{\\ln 3}{\\ln 2}", "\\frac{1}{\\log_3 2}"], ["\\log_3 2", "1.585"]),
    "\\arctan 2": (["\\tan^{-1} 2", "\\arccos\\frac{1}{\\sqrt{5}}"], ["\\tan 2", "\\arctan 3"]),
    "\\frac{\\pi}{3}": (["\\frac{2\\pi}{6}", "\\pi/3"], ["\\arccos\\frac{1}{2}", "60", "1.0472"]),
    "2+\\pi": (["\\pi + 2", "2 + π", "\\frac{4+2\\pi}{2}"], ["5.14159", "2\\pi", "2-\\pi"]),
    "\\frac{n(n+1)}{2}": (
        ["\\frac{n^2+n}{2}", "\\binom{n+1}{2}", "(n^2+n)/2", "y = n(n+1)/2"],
        ["\\frac{n(n-1)}{2}", "\\frac{m(m+1)}{2}", "n(n+1)", "\\frac{n(n+1)}{2} + 10^{-9}"],
    ),
    "f(x)=2x": (["f(n) = 2n", "2x", "f(x) = x + x"], ["f(x) = x", "f(x) = x^2", "2y", "g(x) = 2x"]),
    "(1,2)": (
        ["\\left( 1, 2 \\right)", "(1.0, 2)", "\\left(1,\\frac{4}{2}\\right)"],
        ["(2,1)", "(1,2,3)", "1", "[1,2]", "(1,2]"],
    ),
    "(-\\infty, -5)": (["x < -5", "-5 > x", "(-\\infty,-5.0)"], ["(-\\infty,-5]", "x > -5", "(-5, \\infty)", "-5"]),
    "[0,1)": (["0 \\le x < 1", "x \\in [0, 1)", "1 > x \\geq 0"], ["[0,1]", "(0,1)", "(0,1]"]),
    "(-\\infty,0) \\cup \\{1\\}": (
        ["\\{1\\} \\cup (-\\infty, 0)", "(-∞,0) ∪ \\{1\\}"],
        ["(-\\infty,0)", "(-\\infty,1)"],
    ),
    "\\{1,2,3\\}": (
        ["1, 2, 3", "\\{3, 2, 1\\}", "3, 1 \\text{ and } 2"],
        ["1, 2", "1,2,4", "(1,2,3)", "1,2,3,4", "1,1,2,3"],
    ),
    "(1,2), (3,4)": (["(x,y) \\in \\{(1,2),(3,4)\\}", "(3,4) \\text{ and } (1,2)"], ["(2,1), (3,4)", "(1,2,3,4)"]),
    "4, 6": (["5 \\pm 1", "x = 4 \\text{ or } x = 6", "6; 4"], ["4", "46", "5 \\pm 2", "4, 6, 6"]),
    "x^2+y^2=1": (["y^2 + x^2 - 1 = 0", "2x^2 = 2 - 2y^2"], ["x^2+y^2=2", "x^2-y^2=1", "x+y=1"]),
    "\\frac{100!}{2^{50}}": (
        ["100! / 2^{50}", "\\frac{100!}{4^{25}}"],
        ["\\frac{100!}{2^{51}}", "\\frac{99!}{2^{50}}"],
    ),
    "\\lfloor n/2 \\rfloor": (["\\left\\lfloor \\frac{n}{2} \\right\\rfloor"], ["\\lceil n/2 \\rceil", "n/2"]),
    "|x|": (["\\left| x \\right|", "|-x|"], ["x", "-x"]),
    "\\text{yes}": (["yes", "\\textbf{Yes}"], ["no", "yes or no"]),
    "\\text{A}": (["A", "\\mathrm{A}"], ["B", "a b"]),
    # groups of digits
    "10,\\!080": (
        [
            *("10080", "10,080", "10{,}080", "10\\,080", "10\\!080", "10~080", "10 080", "10\u2009080", "10\u202f080"),
            *(
                "10\u00a0080",
                "10\\ 080",
                "10{,}\\!080",
                "10\\;080",
                "x = 10,080",
                "10,080.0",
                "\\{10,080\\}",
                "{10,080}",
            ),
            *("\\$10,\\!080", "\\frac{20,160}{2}"),
        ],
        [
            *("10", "80", "0", "800", "1080", "10,81", "10,80", "10, 80", "(10, 80)", "1,0080", "100,80", "10080,000"),
            *("10,\\!080,\\!000", "10 80", "10,\\,80", "10\\,80", "10.080", "10{,}08"),
        ],
    ),
    "2\\,000": (
        ["2000", "2{,}000", "2 000", "2,000"],
        ["0", "2", "2\\,00", "20\\,00", "2000\\,000", "2,0", "(2,000,1)"],
    ),
    "1,000,000": (
        ["10^6", "1\\,000\\,000", "1000000", "1 000 000"],
        ["1", "1,000", "1,000,00", "1, 000, 0", "1000,000"],
    ),
    "314": (["3.14 \\times 10^2"], ["3{,}14", "0,314", "3 14"]),
    "(1,234)": (["(1, 234)", "\\left(1,\\, 234\\right)"], ["1234", "1,234", "(1234)", "(234, 1)", "1\\,234"]),
    "\\{1000, 2\\}": (
        ["{1,000, 2}", "\\{1,000, 2\\}", "\\{2, 1\\,000\\}", "2, 1{,}000", "{2, 1000}"],
        ["\\{0, 1, 2\\}", "\\{1, 2\\}", "1,0002", "\\{1,001, 2\\}", "(1000, 2)"],
    ),
    "\\{1, 234, 5\\}": (["\\{1,234,5\\}", "5, 1, 234", "[1, 234, 5]"], ["\\{1234, 5\\}", "1\\,234, 5"]),
    # layout
    "73": (
        [
            "{73}",
            "\\mathbf{73}",
            "\\displaystyle{73}",
            "\\boxed{73}",
            "{\\bf 73}",
            "[73]",
            "np.int64(73)",
            "Integer(73)",
            "73.0",
        ],
        ["{7}{3}", "\\mathbf{7}3", "{74}", "[73, 73]", "[[73]]", "{7, 3}", "\\boxed{7}3", "[7, 3]", "7*73/7"],
    ),
    "\\displaystyle{\\frac12}": (
        ["0.5", "Rational(1, 2)", "Fraction(1, 2)"],
        ["Rational(2, 1)", "\\frac{1}{12}", "Rational(1, 3)"],
    ),
    "\\begin{pmatrix} -1/3 \\\\ 2/3 \\end{pmatrix}": (
        [
            "\\begin{bmatrix} \\frac{-1}{3} \\\\ \\frac{2}{3} \\end{bmatrix}",
            "Matrix([[-1/3], [2/3]])",
            "Matrix([-1/3, 2/3])",
        ],
        [
            "\\begin{pmatrix} -1/3 & 2/3 \\end{pmatrix}",
            "\\begin{pmatrix} 2/3 \\\\ -1/3 \\end{pmatrix}",
            "(-1/3, 2/3)",
            "Matrix([[-1/3, 2/3]])",
        ],
    ),
    # as Python and sympy print
    "\\frac{\\sqrt{2}}{2}": (
        ["sqrt(2)/2", "2**(-1/2)", "1/sqrt(2)", "math.sqrt(2)/2", "sqrt(2)*0.5", "2**(-0.5)"],
        ["sqrt(2)", "sqrt(2)*2", "-sqrt(2)/2", "sqrt(3)/2", "2**(1/2)", "0.7071067811865476", "cos(pi/4)", "qrt(2)/2"],
    ),
    "2^{10}": (["2**10", "1024", "Pow(2, 10)"], ["2*10", "2**11", "10**2", "2**10**1", "2**9*2", "-2**10"]),
    "x^2-1": (
        ["x**2-1", "x**2 - 1", "(x - 1)*(x + 1)", "-1 + x**2"],
        ["x**2+1", "x*2-1", "2**x-1", "y**2-1", "x**2", "x**2-1.001"],
    ),
    "\\pi": (["pi", "math.pi", "pi*1"], ["2*pi", "-pi", "3.14159265358979", "p*i", "pie"]),
    "90^\\circ": (
        ["\\boxed{90^\\circ}", "{90^{\\circ}}", "\\boxed{90\\text{ cm}^2}", "{90 cm^2}"],
        ["\\boxed{9^\\circ}", "90^{1}0"],
    ),
    "(1,2), (3,5)": (["[(1, 2), (3, 5)]"], ["[(2, 1), (3, 5)]", "[(1, 2), (3, 5), (3, 5)]"]),
    "2\\pi\\sqrt{3}": (["2pi*sqrt(3)", "2 pi * sqrt(3)", "2*3sqrt(3)*pi/3"], ["2pi", "2pi*3sqrt(3)", "23pi"]),
    "\\frac{\\pi}{6}": (["pi/6", "1/6*pi"], ["pi*6", "pi/3", "asin(1/2)"]),
    "0.001": (["1e-3", "1.0e-3", "1E-3", "1e-03"], ["1e-4", "1e3", "1e-33", "-1e-3", "e-3", "1 e-3"]),
    "0.00002": (["2e-05", "2.0e-5"], ["2e05", "2e-06"]),
    "2e-3": (["2e - 3", "-3 + 2*E"], ["0.002", "2*e*(-3)"]),
    "6-5i": (["6 - 5*I", "(6-5j)", "-5*I + 6"], ["6 + 5*I", "5 - 6*I", "(6+5j)", "(5-6j)", "6 - 5*J"]),
    "1, 2": (["{1, 2}", "{2, 1}", "FiniteSet(1, 2)"], ["(1, 2)", "{1, 3}", "{1}", "12", "{1: 2}"]),
    "1 \\pm \\sqrt{19}": (["{1 - sqrt(19), 1 + sqrt(19)}"], ["{1 - sqrt(19)}", "{1 - sqrt(19), 1 + sqrt(18)}"]),
    "\\{1 \\pm \\sqrt{5}, -2\\}": (
        ["[-2, 1 - sqrt(5), 1 + sqrt(5)]"],
        ["[-2, 1 - sqrt(5)]", "[2, 1 - sqrt(5), 1 + sqrt(5)]"],
    ),
    "(\\frac{\\sqrt{3}}{3}, 2)": (["(sqrt(3)/3, 2)"], ["(2, sqrt(3)/3)", "[sqrt(3)/3, 2]", "{sqrt(3)/3, 2}"]),
    "[0,1]": (
        ["Interval(0, 1)", "[0, 1]", "(0 <= x) & (x <= 1)"],
        ["Interval.open(0, 1)", "Interval(0, 2)", "(0, 1)", "(0 <= x) & (x < 1)"],
    ),
    "(3,4]": (
        ["Interval.Lopen(3, 4)", "(x <= 4) & (3 < x)"],
        ["Interval.Ropen(3, 4)", "Interval(3, 4)", "(x < 4) & (3 < x)"],
    ),
    "(-\\infty, 2) \\cup (3, \\infty)": (
        ["Union(Interval.open(-oo, 2), Interval.open(3, oo))", "((-oo < x) & (x < 2)) | ((3 < x) & (x < oo))"],
        [
            "Union(Interval(-oo, 2), Interval(3, oo))",
            "Interval.open(-oo, 2)",
            "((-oo < x) & (x < 3)) | ((3 < x) & (x < oo))",
        ],
    ),
    "\\infty": (["oo", "inf"], ["-oo", "zoo", "nan", "0"]),
    "\\log_2 5": (["log(5, 2)", "log(5)/log(2)", "ln(5)/ln(2)"], ["log(2, 5)", "log(5)", "log(2)/log(5)"]),
    "e^{2}": (["exp(2)", "E**2"], ["exp(-2)", "e*2", "E*2", "2**E"]),
    "5 \\cdot n!": (["5*factorial(n)"], ["factorial(5*n)", "5*n"]),
    "x \\geq 5": (
        ["x >= 5", "5 <= x", "Interval(5, oo)", "(5 <= x) & (x < oo)"],
        ["x > 5", "x <= 5", "Interval.open(5, oo)"],
    ),
    "\\lfloor\\frac{2n-1}{5}\\rfloor": (
        ["floor(2*n/5 - 1/5)", "\\lfloor\\frac{2n}{5}-0.2\\rfloor", "-ceiling((1 - 2*n)/5)"],
        ["floor(2*n/5 - 2/5)", "\\lfloor\\frac{2n-2}{5}\\rfloor", "floor(2*n/5 - 1/6)", "ceiling(2*n/5 - 1/5)"],
    ),
    "f(n) = 2n + 1007": (["Eq(f(n), 2*n + 1007)", "2*n + 1007"], ["Eq(f(n), 2*n + 1008)", "Eq(g(n), 2*n + 1007)"]),
    "y = 2x + 3": (["Eq(y, 2*x + 3)", "y == 2*x + 3", "2*x + 3"], ["Eq(y, 2*x - 3)", "Eq(x, 2*y + 3)", "2*x"]),
    "\\emptyset": (["EmptySet", "set()", "[]", "\\{\\}"], ["0", "{0}", "[0]"]),
    "\\alpha + 1": (["alpha + 1*1"], ["alpha*1", "beta + 1*1"]),
    "i": (["1j", "I", "(0+1j)"], ["-1j", "2j", "1", "j"]),
    "2i": (["2j", "2*I", "2.0j"], ["2", "-2j", "2j+1", "2j+2j"]),
    "-i": (["-1j", "(-0-1j)"], ["1j", "-1"]),
    "3+4i": (["4j+3", "(3+4j)"], ["3j+4", "4j-3", "3+4j+4j"]),
    "3i+4j": (["4j+3i"], ["7i", "7j", "3j+4i"]),
    # a number and words
    "7": (
        [
            "7\\text{ apples}",
            "7\\text{ more apples}",
            "7\\text{ times a day}",
            "7.",
            "7\\text{ months}",
            "7\\text{ kg}",
        ],
        [
            *(
                "7\\text{ million}",
                "7\\text{ hundred}",
                "7\\text{k}",
                "7\\text{ in a thousand}",
                "7 million",
                "7 dozen",
            ),
            *("7\\text{ squared}", "7\\text{ cubed}", "7\\text{ plus}", "7\\text{ minus one}", "7\\text{ and a half}"),
            *("7\\text{ or more}", "7\\text{ apples or less}", "7\\text{ at least}", "7\\text{ or 8}", "7 or more"),
            *("7 squared", "7 at least", "7 plus", "7\\text{...}"),
            *("7\\text{ less 3}", "7\\text{ fewer 10 of them}", "7\\text{ increased by 3x}", "7\\text{ times 3}"),
        ],
    ),
    # a derivative is not the function
    "y": (["(y)"], ["y'", "y’", "y''", "y^{\\prime}", "y^\\prime", "(y)'", "\\sin'(y)"]),
    "y'": (["y^{\\prime}", "y^\\prime", "y’", "y^{'}"], ["y", "y''", "y^2", "y^{\\prime\\prime}", "x'"]),
    "2f'(x) + 1": (["2f^{\\prime}(x) + 1"], ["2f(x) + 1", "2f''(x) + 1"]),
    "x_1": (["x_{1}"], ["x_1'", "x_{1}'"]),
    "x^2": (["f'(x) = x^2", "y' = x^2"], ["(x^2)'", "x'^2"]),
    "30": (["30'"], ["30x'"]),
    "7000000": (
        [
            *("7\\text{ million}", "7 million", "7\\,\\text{Million people}", "\\$7 million dollars", "7,000\\text{k}"),
            *("x = 7 million", "70\\text{ hundred thousand}"),
        ],
        ["7\\text{ billion}", "7", "7 thousand", "7\\text{ million or more}", "7\\text{ million and a half}"],
    ),
    "24": (["2\\text{ dozen eggs}", "2 dozen"], ["2\\text{ dozens or more}", "1 dozen", "2 hundred"]),
    "7k": (["7 k"], ["7\\text{k}", "7000"]),
    # figures left out
    "5": (["5.", "5 .", "5.0."], ["5\\ldots", "5...", "5\\dots.", "5…", "5.."]),
    "5.1": (["5.1."], ["5.1...", "5.1\\ldots", "5.1\\cdots", "5.1. . ."]),
    "\\frac{3}{10}": (["0.3"], ["0.3\\ldots", "0.3...", "\\frac{1}{3.3\\ldots}"]),
    "\\sqrt{8}": (["2\\sqrt{2}."], ["2\\sqrt{2}\\ldots", "2\\sqrt{2}..."]),
    # letters and functions in upright type
    "5i": (["5\\mathrm{i}", "5\\operatorname{i}"], ["5", "5\\text{ cm}", "\\mathrm{i}^5"]),
    "2+3i": (["2+3\\mathrm{i}"], ["2+3", "2+3\\mathrm{e}"]),
    "e^2": (["\\mathrm{e}^2", "\\mathrm{e}^{2}"], ["\\mathrm{e}", "\\mathrm{e}^3"]),
    "5\\sin x": (["5\\operatorname{sin}(x)", "5\\mathrm{sin}\\,x"], ["5x", "5\\operatorname{cos}(x)", "5"]),
    "5x": (["5\\mathrm{x}", "5·x"], ["5", "5\\operatorname{sin}(x)", "5\\mathrm{x}^2"]),
    # names before a value
    "9": (
        ["AB = 9", "\\text{Area} = 9", "f(2) = 9", "\\mathrm{AB}=9", "xy = 9", "9\\text{.}"],
        [
            *(
                "\\pi x = 9",
                "\\pi r = 9",
                "2x = 9",
                "x + y = 9",
                "9\\text{+}",
                "9\\text{!}",
                "9\\text{3}",
                "9'3",
                "9\\text{ }^2",
            ),
            *("AB = 8", "AB \\neq 9", "AB > 9"),
        ],
    ),
    "(5,3)": (
        ["(x,y)=(5,3)", "(a, b) = (5, 3)"],
        ["(y,x)=(5,3)", "(x,y)=(3,5)", "(x,x)=(5,3)", "(1,2)=(5,3)", "x=(5,4)"],
    ),
    # arguments of commands without groups
    "\\frac{\\pi}{2}": (["\\frac\\pi2", "\\frac{\\pi}2", "\\frac\\pi{2}"], ["\\frac2\\pi", "\\frac\\pi{12}"]),
    "\\frac{x}{2}": (["\\frac x2", "\\frac x{2}"], ["\\frac 2x", "\\frac x{12}"]),
    "\\frac{\\sqrt{2}}{3}": (
        ["\\frac{\\sqrt{2}}3", "\\frac{\\sqrt2}3", "\\frac{2^\\frac12}3"],
        ["\\frac{\\sqrt23}3", "\\frac3{\\sqrt2}"],
    ),
    "\\sqrt{\\frac{1}{x}}": (
        ["\\sqrt{\\frac1x}", "\\frac1{\\sqrt x}", "\\frac{1}{\\sqrt x}"],
        ["\\sqrt x", "\\frac1x"],
    ),
    # other digits
    "\\frac{1}{3}": (
        ["0.\\bar3", "0.\\bar{3}", "0.\\dot{3}", "0.\\overline 3"],
        ["0.\\bar{33", "0.3", "0", "0.\\bar{30}", "0.(3)"],
    ),
    "12345": (["12'345", "12\u2019345", "(12345+0j)"], ["123'45", "12'34'5", "12345j", "(12345+1j)", "(0+12345j)"]),
    "\\{-1, 1\\}": (["±1"], ["1", "-1", "±2"]),
}


@pytest.fixture(scope="module")
def trees(reading: LocalSandbox) -> dict[str, Any]:
    """The trees of all texts of the table, read at once: they are ours."""
    answers = Answers(Executor(reading, Limits(cpu_s=60, idle_s=60, memory_mib=1024)))
    texts = [text for gold, (same, other) in SAME.items() for text in (gold, *same, *other)]
    return dict(zip(texts, asyncio.run(answers.read_all(texts)), strict=True))


@pytest.mark.parametrize("gold", SAME)
def test_notations_and_near_misses(gold: str, trees: dict[str, Any]) -> None:
    same, other = SAME[gold]
    assert trees[gold] is not None
    assert [text for text in same if trees[text] is None or not equal(trees[text], trees[gold])] == []
    assert [text for text in other if trees[text] is not None and equal(trees[text], trees[gold])] == []


HOSTILE = [
    "9^{9^{9^{9^{9}}}}",
    "(((((9!)!)!)!)!)!",
    "\\binom{10^{9}}{5 \\cdot 10^{8}}",
    "{" * 900 + "1" + "}" * 900,
    "(" * 900 + "1" + ")" * 900,
    "\\sqrt{" * 200 + "204" + "}" * 200,
    "\\frac{1}{" * 100 + "1",
    "1+" * 900 + "1",
    "9" * 100_000,
    "__import__('os').system('id')",
    "\\input{/etc/passwd}",
    "().__class__.__base__.__subclasses__()",
    "204'); import os; os._exit(0) #",
    "²⁰⁴",
    "𝟐𝟎𝟒",
    "٢٠٤",
    "2\u200b04",
    "\ud83d",
    "\x00",
    "",
    " ",
    "\\boxed{204}}",
    "[[[[204]]]]",
    "nan",
    "\\infty",
    "0/0",
    "\\frac{204}{0}",
    "x",
    "*",
    "204 = 205",
    "204 = 204 = 205",
    "\\{0,1,\\ldots,999\\}",
    "9**9**9**9",
    "factorial(factorial(factorial(9)))",
    "(" * 99 + "2*1" + ")" * 99,
    "-" * 1900 + "2*1",
    "2**" * 600 + "1",
    "1e999*1e999",
    "204*1j",
    "[204 for x in y]*1",
    "(lambda: 204)()*1",
    "204 if 1 else 0*1",
    "max.__self__.eval('204')*1",
    "Rational('204', 0)*1",
    "[0, 999]",
    "\\mathbb{Z}",
    "\\text{the answer}",
]


@pytest.mark.sandbox
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_answers_are_wrong_in_bounded_time(text: str, reading: LocalSandbox) -> None:
    answers = Answers(Executor(reading, Limits(cpu_s=2.0, memory_mib=512)))
    start = time.process_time()
    assert not await answers.equal(text, "204")
    assert time.process_time() - start < 1, "the trainer itself was kept busy"
    assert (await answers.read("\\frac{1}{3}")) == ["rat", 1, 3], "the sandbox is damaged"


async def test_an_answer_is_read_without_the_expected_one(reading: LocalSandbox) -> None:
    """Neither program has the text of the other."""
    submitted: list[Job] = []

    class Recording(LocalSandbox):
        async def run(self, job: Job, limits: Limits | None = None) -> Result:
            submitted.append(job)
            return await reading.run(job, limits)

    assert await Answers(Executor(Recording(), READING)).equal("\\frac{1}{3}", "\\frac{2}{6}")
    jobs = [str(job.entry) for job in submitted]
    assert len(jobs) == 2 and not any("{1}{3}" in job and "{2}{6}" in job for job in jobs)


async def test_an_unreadable_expected_answer_is_compared_as_text(reading: LocalSandbox) -> None:
    answers = Answers(Executor(reading, READING))
    odd = "a \\text{ with } \\mho(a)=0"
    assert await answers.equal("a\\text{ with }\\mho(a)=0", odd) and not await answers.equal("a", odd)
    assert not await answers.equal("", "")


@pytest.mark.parametrize(
    ("gold", "same", "other"),
    [
        ("2 3", " 2  3", "23"),
        ("10 20 30", "10\n20 30", "102030"),
        ("1 2", "1 \t 2", "12"),
        ("1 + 2 3", "1+2 3", "1 + 23"),
        ("7\\text{ or more}", "7 \\text{or more}", "7"),
        ("0.3\\ldots", "0.3 \\ldots", "0.3"),
    ],
)
async def test_unreadable_numbers_stay_apart(gold: str, same: str, other: str, reading: LocalSandbox) -> None:
    answers = Answers(Executor(reading, READING))
    assert await answers.equal(same, gold) and not await answers.equal(other, gold)


@pytest.mark.parametrize("text", ["2 04", "20 4", "2\n04"])
async def test_figures_apart_are_not_one_number(text: str, reading: LocalSandbox) -> None:
    answers = Answers(Executor(reading, READING))
    assert not await answers.equal(text, "204")
    assert await answers.equal("\\frac 1 2", "\\frac12")


async def test_several_answers_are_no_thousands(reading: LocalSandbox) -> None:
    answers = Answers(Executor(reading, READING))
    assert await answers.equal("200, 100", "100,200", several=True)
    assert not await answers.equal("200, 100", "100,200")
    assert not await answers.equal("100200", "100,200", several=True)


async def test_a_printed_list_of_two_is_no_interval(reading: LocalSandbox) -> None:
    """A program prints the members of a list as others write an interval."""
    answers = Answers(Executor(reading, READING))
    for gold in ("1, 2", "\\{2, 1\\}", "[1, 2]"):
        assert await answers.equal("[1, 2]", gold, printed=True)
        assert await answers.equal("[1, 2]", gold) == (gold == "[1, 2]")
    assert await answers.equal("[1, 2]", "2,1", several=True)
    for other in ("(1, 2)", "1, 3", "(1, 2]", "1, 2, 3"):
        assert not await answers.equal("[1, 2]", other, printed=True)
    assert await answers.equal("E", "e", printed=True) and await answers.equal("E", "\\text{(E)}", printed=True)
    assert not await answers.equal("E", "e")


async def test_reading_ends_in_time(reading: LocalSandbox) -> None:
    answers = Answers(Executor(reading, Limits(cpu_s=0.02)))
    assert await answers.read("\\frac{\\sqrt{x}}{2}") is None
    assert reading.verdicts[Verdict.TIMEOUT] > 0


@pytest.mark.parametrize(("text", "tree"), [("025", ["int", 25]), (" -0.50 ", ["rat", -1, 2]), ("+3.0", ["int", 3])])
def test_figures_take_no_sandbox(text: str, tree: list) -> None:
    assert figures(text) == tree


@pytest.mark.parametrize("text", ["1e5", "0x10", "1_0", "٣", "1.", ".5", "--1", "1 2", "9" * 300])
def test_texts_that_are_no_plain_number(text: str) -> None:
    assert figures(text) is None

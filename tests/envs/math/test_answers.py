"""Written answers: parsed in the sandbox, compared as trees."""

import asyncio
import time
from typing import Any

import pytest

from troupe.envs.execution import Execution
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
}


@pytest.fixture(scope="module")
def trees(reading: LocalSandbox) -> dict[str, Any]:
    """The trees of all texts of the table, read at once: they are ours."""
    answers = Answers(Execution(reading, Limits(cpu_s=60, idle_s=60, memory_mib=1024)))
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
    "[0, 999]",
    "\\mathbb{Z}",
    "\\text{the answer}",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_answers_are_wrong_in_bounded_time(text: str, reading: LocalSandbox) -> None:
    answers = Answers(Execution(reading, Limits(cpu_s=2.0, memory_mib=512)))
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

    assert await Answers(Execution(Recording(), READING)).equal("\\frac{1}{3}", "\\frac{2}{6}")
    jobs = [str(job.entry) for job in submitted]
    assert len(jobs) == 2 and not any("{1}{3}" in job and "{2}{6}" in job for job in jobs)


async def test_an_unreadable_expected_answer_is_compared_as_text(reading: LocalSandbox) -> None:
    answers = Answers(Execution(reading, READING))
    odd = "a \\text{ with } \\mho(a)=0"
    assert await answers.equal("a\\text{ with }\\mho(a)=0", odd) and not await answers.equal("a", odd)
    assert not await answers.equal("", "")


@pytest.mark.parametrize("text", ["2 04", "20 4", "2\n04"])
async def test_figures_apart_are_not_one_number(text: str, reading: LocalSandbox) -> None:
    answers = Answers(Execution(reading, READING))
    assert not await answers.equal(text, "204")
    assert await answers.equal("\\frac 1 2", "\\frac12")


async def test_several_answers_are_no_thousands(reading: LocalSandbox) -> None:
    answers = Answers(Execution(reading, READING))
    assert await answers.equal("200, 100", "100,200", several=True)
    assert not await answers.equal("200, 100", "100,200")
    assert not await answers.equal("100200", "100,200", several=True)


async def test_reading_ends_in_time(reading: LocalSandbox) -> None:
    answers = Answers(Execution(reading, Limits(cpu_s=0.02)))
    assert await answers.read("\\frac{\\sqrt{x}}{2}") is None
    assert reading.verdicts[Verdict.TIMEOUT] > 0


@pytest.mark.parametrize(("text", "tree"), [("025", ["int", 25]), (" -0.50 ", ["rat", -1, 2]), ("+3.0", ["int", 3])])
def test_figures_take_no_sandbox(text: str, tree: list) -> None:
    assert figures(text) == tree


@pytest.mark.parametrize("text", ["1e5", "0x10", "1_0", "٣", "1.", ".5", "--1", "1 2", "9" * 300])
def test_texts_that_are_no_plain_number(text: str) -> None:
    assert figures(text) is None

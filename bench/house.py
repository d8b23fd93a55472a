"""How large the house is: lines of code, prose, files, yamls, words, files of one step, seconds of tests.

``python bench/house.py [--trace] [--ci FILE]`` prints one line for each measure.  ``--trace`` plays one iteration of
Sokoban and lists the files that a candidate passes; ``--ci`` reads the seconds of each stage from the output of
``.ci/run``.

- *Code* is what is left of a file in ``src/`` without docstrings, comments and blank lines, counted by tokens.
- *Written by hand* are the words of README, CONTRIBUTING and the pages in ``docs/``, without the pages and marked
  sections that a generator writes.  The changelog is left out: it is history.
- *A step* is every file of ours in which a function runs while one iteration's episodes are sampled, judged, given
  their credit, routed, packed and learnt from, less ``NOT_PASSED``, which names the reason for each.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import re
import sys
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
GENERATED = ("docs/results/", "docs/configuration.md", "docs/reproduction.md", "docs/one_step.md")
SECTION = re.compile(r"<!-- (?:[\w -]+, )?written by `make \w+`: begin -->.*?end -->", re.DOTALL)

NOT_PASSED = {
    "runs/": "display and progress of the run",
    "diagnostics/": "statistics of what was played",
    "errors.py": "texts of errors",
    "setup/": "composition, before the step",
    "models/learning/update_stats.py": "statistics of the update",
}
"""What runs during a step and does not touch the candidate, with the reason."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", action="store_true", help="play one iteration and list its files")
    parser.add_argument("--ci", type=Path, help="the output of .ci/run")
    options = parser.parse_args()
    for name, value in measures().items():
        print(f"{name:<28} {value}")
    if options.trace:
        passed = sorted(traced())
        counted = [file for file in passed if not file.startswith(tuple(NOT_PASSED))]
        print(f"{'files of a traced step':<28} {len(counted)} (of {len(passed)} that ran)")
        print("\n".join(f"  {file}" for file in counted))
        print("left out:", *sorted(set(passed) - set(counted)))
    if options.ci:
        print("\n".join(f"  {stage:<14} {seconds} s" for stage, seconds in stages(options.ci.read_text())))


def measures() -> dict[str, str]:
    """By name, the size."""
    total: Counter[str] = Counter()
    files = sorted((ROOT / "src").rglob("*.py"))
    rooms: Counter[str] = Counter()
    for file in files:
        counts = counted_lines(file.read_text(encoding="utf-8"))
        total.update(counts)
        place = file.relative_to(ROOT / "src")
        rooms[place.parts[0] if len(place.parts) > 1 else "top"] += counts["code"]
    lines = sum(total.values())
    tests = sum(counted_lines(file.read_text(encoding="utf-8"))["code"] for file in (ROOT / "tests").rglob("*.py"))
    names = Counter(file.name for file in files if file.name not in ("__init__.py", "world.py"))
    classes = Counter(
        node.name for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)
    )
    return {
        "lines of code": f"{total['code']:,} of {lines:,} in src",
        "by room": ", ".join(f"{room} {count:,}" for room, count in rooms.most_common()),
        "docstrings": f"{total['docstring'] / lines:.1%}",
        "comments": f"{total['comment'] / lines:.1%}",
        "files": str(len(files)),
        "yamls": str(len(list((ROOT / "configs").rglob("*.yaml")))),
        "lines of code in tests": f"{tests:,}",
        "words written by hand": f"{sum(len(text.split()) for text in prose()):,}",
        "file names in more than four": ", ".join(f"{name} {n}" for name, n in names.items() if n > 4) or "none",
        "class names in more than one": ", ".join(f"{name} {n}" for name, n in classes.items() if n > 1) or "none",
        "longest file": max((file.read_text().count("\n"), str(file.relative_to(ROOT))) for file in files)[1],
    }


def counted_lines(text: str) -> Counter[str]:
    """How many lines are ``code``, ``docstring``, ``comment`` or ``blank``.  A line with code and a comment is code."""
    kinds = ["blank"] * (text.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if kinds[token.start[0] - 1] == "blank":
                kinds[token.start[0] - 1] = "comment"
        elif token.string.strip() and token.type != tokenize.ENDMARKER:
            for line in range(token.start[0], token.end[0] + 1):
                kinds[line - 1] = "code"
    for node in ast.walk(ast.parse(text)):  # docstrings of attributes, too: strings that stand alone
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                kinds[line - 1] = "docstring"
    return Counter(kinds[:-1] if text.endswith("\n") else kinds)


def prose() -> Iterator[str]:
    for file in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if not str(file.relative_to(ROOT)).startswith(GENERATED):
            yield SECTION.sub("", file.read_text(encoding="utf-8"))
    yield from (file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs/generators").glob("*.template")))


def traced() -> set[str]:
    """The files of ``src`` in which a function runs during one iteration of ``sokoban_specialized``."""
    from tempfile import TemporaryDirectory

    from hydra import compose, initialize_config_module

    from troupe.setup.assembly import build

    place = str(ROOT / "src") + "/"
    files: set[str] = set()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(place) and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename.removeprefix(place))

    async def step(loop: Any) -> None:
        try:
            await loop.team.load_weights()
            threading.setprofile(enter)  # of the threads that begin from here on
            sys.setprofile(enter)
            episodes = await loop.collect()
            loop.credit(episodes)
            await loop.team.update(loop.router.route(episodes, loop.credit.key, loop.credit.weight), 0, in_order=True)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            await loop.world.close()
            await loop.team.close()

    with TemporaryDirectory() as folder, initialize_config_module("troupe.configs", version_base="1.3"):
        settings = [
            "experiment=sokoban_specialized",
            "name=step",
            f"run_dir={folder}/run",
            "loop.tasks_per_iteration=4",
        ]
        asyncio.run(step(build(compose("train", overrides=settings))))
    return files


def stages(text: str) -> Iterator[tuple[str, int]]:
    """The stages of an output of ``.ci/run``, with their seconds."""
    for stage, seconds in re.findall(r"^make (.+): (\d+) s$", text, re.MULTILINE):
        yield stage, int(seconds)


if __name__ == "__main__":
    main()

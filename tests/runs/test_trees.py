"""Training trees of a run directory: read, refused where they are cut, and bounded."""

import json
import re
from collections.abc import Callable
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.directory import RunDirectory
from troupe.runs.files import RunDirectoryError
from troupe.runs.run import RunReader
from troupe.runs.trees import TREE_KEYS, thin, tree_files, tree_problem

Lines = Callable[..., None]


def test_trees_are_read_by_iteration(run_dir: Path, tree: Callable[..., dict[str, Any]], lines: Lines) -> None:
    for iteration in (5, 0):
        lines(run_dir / "episodes" / f"train_{iteration:05d}.jsonl", [tree(f"t{iteration}", iteration)])
    run = RunReader(run_dir)
    assert [each["task_id"] for each in run.tree_records()] == ["t0", "t5"]
    assert [each["task_id"] for each in run.tree_records(5)] == ["t5"]
    assert list(run.tree_files) == [0, 5]
    assert "train_00000" not in run.episode_files
    with pytest.raises(RunDirectoryError, match=r"no trees of iteration 3\. Known: 0, 5"):
        run.tree_records(3)


def test_a_notebook_shows_a_tree_and_every_text_of_it_as_text(
    run_dir: Path, tree: Callable[..., dict[str, Any]], lines: Lines
) -> None:
    hostile = "<script>alert(1)</script><img src=x onerror='a'>&"
    record = tree(hostile, 0, said=hostile)
    for node in record["nodes"]:
        node |= {"agent": hostile, "prompt": hostile}
    lines(run_dir / "episodes" / "train_00000.jsonl", [record])
    page = RunReader(run_dir).tree_records(0)[0]._repr_html_()
    assert "<script" not in page and "<img" not in page and "onerror='" not in page
    shown = re.sub("<[^>]*>", " ", page)
    assert shown.count(escape(hostile)) == 1 + 2 * 2 + 2, "the task, two prompts with their agents, two candidates"
    assert "turn 0" in shown and page.count("<td") == 4 * 5


def test_a_line_that_is_cut_is_refused_or_named(run_dir: Path, tree: Callable[..., dict[str, Any]]) -> None:
    line = json.dumps(tree("a", 0))
    (run_dir / "episodes" / "train_00000.jsonl").write_text(f"{line}\n{line[: len(line) // 2]}")
    with pytest.raises(RunDirectoryError, match=r"train_00000\.jsonl, line 2, is not a whole JSON object"):
        RunReader(run_dir).tree_records()
    tolerant = RunReader(run_dir, tolerant=True)
    assert [each["task_id"] for each in tolerant.tree_records(0)] == ["a"]
    assert len(tolerant.tree_files[0].problems) == 1


def test_another_versions_line_is_named(run_dir: Path, tree: Callable[..., dict[str, Any]], lines: Lines) -> None:
    lines(run_dir / "episodes" / "train_00000.jsonl", [tree("a", 0) | {"tree_format": 9}, tree("b", 0)])
    run = RunReader(run_dir, tolerant=True)
    assert [each["task_id"] for each in run.tree_records()] == ["b"]
    assert run.tree_files[0].problems == ["episodes/train_00000.jsonl, line 1, has tree_format 9, not 1; left out."]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        *((lambda t, key=key: t.pop(key), "it needs") for key in TREE_KEYS),
        (lambda t: t["nodes"][1].update(id=7), "node 1 needs"),
        (lambda t: t["nodes"][0]["candidates"][0].pop("text"), "a candidate of node 0 needs"),
        (lambda t: t["nodes"][0]["candidates"].append(3), "a candidate of node 0 needs"),
        *(
            (lambda t, wrong=wrong: t["nodes"][1]["candidates"][1].update(token_ids=[wrong]), "node 1 has a token id")
            for wrong in (-1, 1 << 24, 10**30, True, 2.0, "7")
        ),
        (lambda t: t["nodes"][0]["candidates"][0].update(logprobs=[-0.5] * 2), "node 0 has 2 logprobs of 1 tokens"),
        (lambda t: t["nodes"][0]["candidates"][0].update(learner_logprobs=["a"]), "learner_logprobs of another type"),
        (lambda t: t["nodes"][0]["candidates"][0].update(tokens=[3]), "has tokens of another type"),
        (lambda t: t["edges"].append({"members": {"a": [0]}}), "needs members"),
        (lambda t: t["edges"].append({"members": {"a": [0, 9]}}), "a candidate that is not there"),
        (lambda t: t["edges"][0].update(child=4), "leads to node 4"),
        (lambda t: t["edges"][0].update(child=0), "edge 0 leads back to node 0"),
    ],
)
def test_what_is_no_tree(
    tree: Callable[..., dict[str, Any]], change: Callable[[dict[str, Any]], object], problem: str
) -> None:
    broken = tree("a", 0)
    assert tree_problem(broken) == ""
    change(broken)
    assert problem in tree_problem(broken)


def test_files_are_thinned_evenly_and_the_newest_stays(tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    for iteration in range(0, 200, 5):
        (tmp_path / "episodes" / f"train_{iteration:05d}.jsonl").write_text("x" * 100)
        thin(tmp_path, 1000)
        kept = list(tree_files(tmp_path))
        assert len(kept) <= 10 and kept[-1] == iteration and kept[0] == 0
    gaps = [after - before for before, after in pairwise(kept)]
    assert max(gaps) <= 4 * min(gaps[:-1])
    thin(tmp_path, 10)
    assert list(tree_files(tmp_path)) == [195]


def test_seconds_are_apart_from_the_trees_and_read_with_them(
    tmp_path: Path, tree: Callable[..., dict[str, Any]]
) -> None:
    directory = RunDirectory(tmp_path / "run", "seed: 0\n")
    timed, untimed = tree("a", 0), tree("b", 0)
    timed["nodes"][0] |= {"seconds": 0.25, "waited": 0.125}
    directory.trees(0, [untimed, timed], 10**6)
    written = (directory.path / "episodes" / "train_00000.jsonl").read_text()
    directory.trees(
        0, [untimed, timed | {"nodes": [timed["nodes"][0] | {"seconds": 4.5}, *timed["nodes"][1:]]}], 10**6
    )  # once more
    assert (directory.path / "episodes" / "train_00000.jsonl").read_text() == written
    read = tree_files(directory.path)[0].trees
    assert [each["nodes"][0].get("seconds") for each in read] == [None, 4.5]
    assert [each["nodes"][0].get("waited") for each in read] == [None, 0.125]
    (directory.path / "tree_seconds" / "train_00000.jsonl").write_text('{"seconds": 7}\n{"seconds": ["x"]}\n')
    assert [each["nodes"][0].get("seconds") for each in tree_files(directory.path)[0].trees] == [None, None]

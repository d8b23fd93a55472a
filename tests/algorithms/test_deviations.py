"""Every algorithm says in its yaml what it does otherwise than its publication."""

from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "configs" / "algorithm").glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_the_comment_at_the_top_has_the_deviations(file: Path) -> None:
    comment, _, _ = file.read_text(encoding="utf-8").partition("\ndefaults:")
    lines = comment.splitlines()
    assert all(line.startswith("# ") for line in lines)
    (deviations,) = (line.removeprefix("# Deviations:") for line in lines if line.startswith("# Deviations:"))
    assert deviations.strip()

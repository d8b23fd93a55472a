"""Pages that are written from the code say what the code says; links lead somewhere."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_configuration_page_is_up_to_date() -> None:
    code = "import make_configuration as m, sys; sys.stdout.write(m.page())"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "docs", capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == found.stdout, "run `make docs`"


def test_the_table_of_strategies_is_up_to_date() -> None:
    found = runpy.run_path(str(ROOT / "docs" / "make_strategies.py"))["page"]()
    assert (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8") == found, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not link.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"

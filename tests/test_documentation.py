"""Pages that are written from the code say what the code says; links lead somewhere."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from troupe.algorithms.credit.at_grpo import AtGrpo

from .documented_commands import PAGES, ROOT

GENERATORS = ROOT / "docs" / "generators"


@pytest.mark.pages
def test_the_configuration_page_is_up_to_date() -> None:
    code = "import make_configuration as m, sys; sys.stdout.write(m.page())"
    found = subprocess.run([sys.executable, "-c", code], cwd=GENERATORS, capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == found.stdout, "run `make docs`"


@pytest.mark.pages
def test_the_table_of_strategies_is_up_to_date() -> None:
    found = runpy.run_path(str(GENERATORS / "make_strategies.py"))["page"]()
    assert (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8") == found, "run `make docs`"


@pytest.mark.pages
def test_the_page_of_one_step_shows_a_real_iteration() -> None:
    """To the word; numbers to 0.002, since processors round differently."""
    played = runpy.run_path(str(GENERATORS / "make_one_step.py"))["page"]()
    written = (ROOT / "docs" / "one_step.md").read_text(encoding="utf-8")
    number = r"-?\d+\.\d+"
    assert re.sub(number, "#", written) == re.sub(number, "#", played), "run `make docs`"
    pairs = zip(re.findall(number, written), re.findall(number, played), strict=True)
    assert all(abs(float(one) - float(other)) <= 0.002 for one, other in pairs), "run `make docs`"


@pytest.mark.pages
def test_the_table_of_biases_is_up_to_date() -> None:
    found = runpy.run_path(str(GENERATORS / "make_credit_table.py"))["page"]()
    assert (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8") == found, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)#?([^)\s]*)", without_code(page)):
        target = page.parent / link if link else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}#{anchor}"


def test_every_sweep_and_table_is_named_on_its_page() -> None:
    for folder, page in (("sweep", "experiments.md"), ("reproduce", "reproduction.md")):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        named = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        files = {file.stem for file in (ROOT / "configs" / folder).glob("*.yaml")}
        assert files and files - set(named) == set(), page


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", text)).lower().replace(" ", "-") for text in headings
    }


def without_code(page: Path) -> str:
    return re.sub(r"^ *(`{3,}).*?^ *\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_the_site_shows_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = {name for name in re.findall(r"[\w/]+\.md\b", text[text.index("\nnav:") :])}
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if (ROOT / "docs") in page.parents}
    assert {page for page in pages if not page.startswith("results/")} <= named, "name it under `nav:` in mkdocs.yml"


def test_the_numbers_of_the_idea() -> None:
    text = (ROOT / "docs/idea.md").read_text(encoding="utf-8")
    rewards, advantages = zip(*re.findall(r"r = (\S+)<br/>A = (\S+?)\"", text), strict=True)
    computed = AtGrpo(baseline="mean", normalise=True, std_floor=1e-6).advantages([float(r) for r in rewards])
    assert advantages == tuple(f"{a:.2f}" for a in computed)

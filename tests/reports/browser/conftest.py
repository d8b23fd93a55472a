"""A page in headless chromium, which has no network, and whose errors fail the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra browser: make test-browser")

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
CHROMIUM = Path("/usr/bin/chromium")
Open = Callable[..., Any]
CLICK = """async (place) => {
    const option = document.querySelector(`.option[aria-posinset='${place}']`);
    const start = performance.now(), before = location.hash;
    option.click();
    while (location.hash === before) await new Promise((done) => setTimeout(done));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - start;
}"""
"""Milliseconds from a click until the episode is painted."""


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    assert CHROMIUM.exists(), f"{CHROMIUM} is missing: make test-browser installs it"
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def accessible() -> Callable[[Any], None]:
    """``accessible(page)``: axe-core finds nothing serious, and nothing is wider than the window."""
    from axe_playwright_python.sync_playwright import Axe

    def check(page: Any) -> None:
        results = Axe().run(page).response
        serious = [
            (each["id"], node["target"], node.get("failureSummary"))
            for each in results["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"][:3]
        ]
        assert serious == []
        assert len(results["passes"]) > 15  # it did look
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    return check


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Open]:
    """``open_page(file, hash="", width=1280, scheme="light", touch=False)``: the page once its explorer is ready.

    At the end of the test: no error on the console, no violation of the page's policy, no request but for the file.
    """
    errors: list[str] = []
    contexts = []

    def open_it(
        file: Path,
        address: str = "",
        *,
        width: int = 1280,
        scheme: str = "light",
        touch: bool = False,
        ready: bool = True,
    ) -> Any:
        window = {"viewport": {"width": width, "height": 900}, "has_touch": touch, "is_mobile": touch}
        context = chromium.new_context(**window, color_scheme=scheme, bypass_csp=False)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "request", lambda request: None if request.url.startswith(file.as_uri()) else errors.append(request.url)
        )
        page.goto(file.as_uri() + address)
        if ready:
            page.wait_for_selector("#explorer[data-ready]")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def show_episode() -> Callable[[Any, int], float]:
    """Clicks on the episode at a place of the list; gives the milliseconds until it is painted."""
    return lambda page, place: page.evaluate(CLICK, place)

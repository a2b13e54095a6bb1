"""The site opens from file:// in a real browser, in light, dark and phone width, and can be
searched there."""

import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser
from starting import ROOT

pytestmark = pytest.mark.apart
BUILT = ROOT / "build" / "site"
#: A page of each type; the strict build checks the rest.
PAGES = (
    "docs/index",
    "README",
    "docs/tutorials/predict-and-choose",
    "docs/reference/cli",
    "docs/reference/python-api",
    "docs/reference/records",
    "docs/explanation/one-sided-and-overlap",
    "docs/results/gallery",
    "docs/explain-demo",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as ``make site`` built it, or built now if a page is newer."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.*")]
    index = BUILT / "index.html"
    if index.exists() and index.stat().st_mtime > max(page.stat().st_mtime for page in pages):
        return BUILT
    out = tmp_path_factory.mktemp("site")
    strictly = ["--fail-on-warning", "--keep-going", "--quiet"]
    command = [sys.executable, "-m", "sphinx", *strictly, "-c", "docs", ".", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return out


@pytest.mark.timeout(400)
@pytest.mark.parametrize("width, dark", [(1366, False), (1366, True), (390, False)])
def test_pages_open_without_errors_and_fit_the_window(site, tmp_path_factory, width, dark):
    with Browser(tmp_path_factory.mktemp("b"), width, 900, dark) as browser:
        browser.dark(dark)
        for page in PAGES:
            browser.show(site / f"{page}.html")
            assert browser.complaints() == [], page
            wide = browser.run("return document.documentElement.scrollWidth")
            assert wide <= width, (page, wide)
            colour = browser.run("return getComputedStyle(document.body).backgroundColor")
            light = sum(map(int, colour[colour.index("(") + 1 : -1].split(",")[:3])) > 384
            assert light != dark, (page, colour)


def test_a_search_without_a_server_finds_the_page_of_a_word(site, tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("b"), 1366, 900) as browser:
        browser.show(site / "search.html", "?q=stationary")
        found = browser.wait_for(
            "return [...document.querySelectorAll('.search li a')].map(a => a.href).join(' ')"
        )
        assert "choose-a-layout.html" in found and browser.complaints() == []

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
    "index",
    "docs/tutorials/predict-and-choose",
    "docs/reference/cli",
    "docs/reference/python-api",
    "docs/reference/records",
    "docs/explanation/one-sided-and-overlap",
    "docs/results/gallery",
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


@pytest.fixture
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("b"), 1366, 900) as found:
        yield found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("dark", [False, True])
def test_pages_open_without_errors_in_light_and_dark(site, browser, dark):
    browser.dark(dark)
    for page in PAGES:
        browser.show(site / f"{page}.html")
        assert browser.complaints() == [], page
        colour = browser.run("return getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, colour[colour.index("(") + 1 : -1].split(",")[:3])) > 384
        assert light != dark, (page, colour)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("width", [390, 1366])
def test_no_page_is_wider_than_the_window(site, browser, width):
    browser.size(width, 900)
    for page in sorted(site.rglob("*.html")):
        browser.show(page)
        wide = browser.run("return document.documentElement.scrollWidth")
        assert wide <= width, (page, wide)


def test_the_home_page_is_readme_with_a_live_page_and_at_most_20_links_beside_it(site, browser):
    browser.show(site / "index.html")
    assert browser.run("return document.querySelector('h1').textContent").startswith("drbench")
    assert browser.run("return document.querySelector('article img').naturalWidth") > 0
    assert browser.run("return document.querySelector('meta[name=description]').content")
    assert browser.run("return document.querySelector('iframe').src").endswith("explain.html")
    assert (site / "explain.html").exists()
    seen = "return [...document.querySelectorAll('.sidebar-tree a')].filter(a => a.offsetHeight)"
    assert 15 <= browser.run(f"{seen}.length") <= 20


def search(site, browser, words):
    """The results of a search: address, title and summary of each."""
    browser.show(site / "search.html", f"?q={words}")
    assert browser.wait_for("return document.querySelector('.search-summary')?.innerText")
    item = "[a.href, a.textContent, a.parentElement.querySelector('.context')?.textContent]"
    links = "[...document.querySelectorAll('.search li > a')]"
    browser.wait_for(f"return {links}.every(a => a.parentElement.children.length > 1)")
    found = browser.run(f"return {links}.map(a => {item})")
    assert browser.complaints() == []
    return found


@pytest.mark.parametrize("term", ["stationary", "replica", "noisy", "partial sum"])
def test_a_search_without_a_server_shows_the_glossary_first_and_texts(site, browser, term):
    found = search(site, browser, term)
    assert "/reference/glossary.html#term-" in found[0][0] and term in found[0][2]
    pages = [each for each in found if "#" not in each[0]]
    assert len(pages) > 3 and all(each[2] for each in pages)


def test_a_search_finds_the_page_about_several_words_and_functions_by_name(site, browser):
    found = search(site, browser, "tensor parallel")
    assert "layer-chains" in " ".join(address for address, *_ in found[:3])
    assert search(site, browser, "multiply")[0][0].endswith("python-api.html#drbench.multiply")


def test_pictures_of_the_gallery_are_in_columns_with_their_captions(site, browser):
    browser.show(site / "docs/results/gallery.html")
    count = "section.querySelectorAll('li').length"
    sections = f"[...document.querySelectorAll('#gallery section')].filter(section => {count} > 2)"
    items = f"[...{sections}.at(-1).querySelectorAll('li')]"
    tops = browser.run(f"return {items}.map(li => li.getBoundingClientRect().top)")
    assert len(tops) > 2 and tops[0] == tops[1]
    assert all(browser.run(f"return {items}.map(li => li.textContent.trim().length > 40)"))
    assert browser.run("return document.querySelector('#gallery h2 a').href").endswith(".html")


def test_a_command_is_copied_without_prompt_and_output(site, browser):
    browser.show(site / "index.html")
    block = "document.querySelector('div.highlight-console')"
    text = browser.run(f"return {block}.querySelector('pre').textContent")
    take = "window.copied = document.activeElement.value"
    browser.run(f"document.execCommand = () => {{ {take}; return true; }}")
    browser.run(f"{block}.querySelector('.copybtn').click()")
    copied = browser.wait_for("return window.copied")
    assert copied and text.startswith(f"$ {copied}\n")

"""The report and the explain page in a real browser: light, dark and as wide as a phone, without a
script error or sideways scrolling, and every control answers."""

from pathlib import Path
from statistics import median

import numpy
import pytest
from pages import EVIL, hostile
from starting import within

from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.explained import explained
from drbench.measure.record import Record
from drbench.plots.report.explained import explained_page
from drbench.plots.report.page import build, page

ROOT = Path(__file__).parents[2]
SCREENS = {"light": (1280, False), "dark": (1280, True), "phone": (390, False)}
SLOW = "return Number(document.documentElement.dataset.drawn)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages by name: a report of a committed sweep, one of records with evil texts, and explain
    pages of one case and of two."""
    folder = tmp_path_factory.mktemp("pages")
    machine = find_machine("pvc12")
    described = [
        explained(Case(*sizes, *layouts, options={"stationary": still}), machine, 12)
        for sizes, layouts, still in (
            ((4096, 4096, 4096), ("column", "column", "column"), "C"),
            ((1000, 900, 800), ("row/c2", "column/c3", "block/c2"), "A"),
        )
    ]
    environment = [{"name": text, "rows": [(text, text)], "trouble": text} for text in EVIL]
    made = {
        "report": build([ROOT / "results/measured/epyc-2core/peers-p4"]),
        "decided": build([ROOT / "results/measured/epyc-2core/mlp1-dtensor-h1536-p2"]),
        "many": build([ROOT / "results/measured/epyc-2core/exhaustive-p4"]),
        "evil": page(hostile(), environment, EVIL[1]),
        "explain": explained_page(described[:1], "test"),
        "two": explained_page(described, "test"),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.mark.parametrize("screen", SCREENS)
def test_pages_open_without_an_error_and_without_sideways_scrolling(browser, pages, screen):
    width, dark = SCREENS[screen]
    browser.size(width, 900)
    browser.dark(dark)
    for name in ("report", "two") if screen == "dark" else pages:
        browser.open(pages[name])
        assert browser.complaints() == [], name
        assert browser.run("return document.documentElement.scrollWidth") <= width, name
        theme = browser.run("return document.documentElement.dataset.theme")
        assert theme == ("dark" if dark else "light"), name
        assert browser.run("return window.struck") is None, name
        browser.run("document.getElementById('theme').click()")
        assert browser.run("return document.documentElement.dataset.theme") != theme
        narrow = (
            "return [...document.querySelectorAll('td, p')].filter((each) => each.offsetWidth > 1 "
            "&& each.textContent.length > 30 && each.getBoundingClientRect().width < 60).length"
        )
        assert browser.run(narrow) == 0, name
        small = (
            "return [...document.querySelectorAll('button, select')].filter((each) => "
            "each.offsetHeight && each.offsetHeight < 24).length"
        )
        assert width > 600 or browser.run(small) == 0, name
        inked = (
            "return [...document.querySelectorAll('canvas')].map((canvas) => new Set(canvas"
            ".getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size)"
        )
        drawn = browser.run(inked)
        assert len(drawn) == 3 * (name == "explain") + 6 * (name == "two"), name
        assert min(drawn, default=99) > 10, name
    browser.dark(False)


@pytest.mark.parametrize("name, most", [("many", 1_500_000), ("explain", 1_000_000)])
def test_pages_of_many_cases_and_of_12_ranks_are_small_and_quick(browser, pages, name, most):
    """Their scripts take less than a second."""
    assert pages[name].stat().st_size <= most
    browser.size(1280, 900)
    taken_ms = []
    for _ in range(3):  # others may have the cores
        browser.open(pages[name])
        taken_ms.append(browser.run(SLOW))
    assert within(min(taken_ms), 1000)


def test_a_strip_shows_the_repeats_and_percentiles_of_ten_or_more_only(browser, tmp_path):
    times = [round(1e-3 * (1 + 0.37 * at % 0.2), 7) for at in range(1, 13)]
    common = {"algorithm": "universal", "m": 64, "n": 64, "k": 64, "ranks": 2, "label": "here"}
    records = [
        Record(mode=mode, status="ok", best_s=min(of), median_s=median(of), samples_s=of, **common)
        for mode, of in (("measured", times), ("measured", times[:9]), ("simulated", times))
    ]
    path = tmp_path / "strips.html"
    path.write_text(page(records, [], "strips"), encoding="utf-8")
    browser.size(1280, 900)
    browser.open(path)
    heads = browser.run(
        "return [...document.querySelectorAll('#cases th')].map((x) => x.innerText)"
    )
    cells = browser.run(
        "return [...document.querySelectorAll('#cases tbody tr')].map((row) => [...row.children]"
        ".map((cell) => cell.querySelectorAll('circle').length || cell.innerText))"
    )
    rows = [dict(zip(heads, row)) for row in cells]
    assert [row["repeats"] for row in rows] == [12, 9, ""]
    for name, part in (("p10_s", 10), ("p90_s", 90)):
        assert [row[name] for row in rows[1:]] == ["", ""]
        assert float(rows[0][name]) == pytest.approx(numpy.percentile(times, part), rel=1e-3)
    browser.run("document.querySelectorAll('#cases tbody tr')[1].click()")
    described = browser.run("return document.querySelector('#case').innerText")
    assert "9 repeats, 1.02 ms to 1.19 ms" in described and "80 %" not in described
    assert browser.complaints() == []


#: Where a mark of a figure is in the window, of what is scrolled into it.
MARK = """
const drawing = document.querySelector("figure .drawing");
const { spots } = JSON.parse(document.getElementById("data").textContent);
const [x, y, wide, high] = spots[0][arguments[0]];
const middle = (box) => [box.left + (x + wide / 2) / 1000 * box.width,
  box.top + (y + high / 2) / 1000 * box.height].map(Math.round);
window.scrollBy(0, middle(drawing.getBoundingClientRect())[1] - innerHeight / 2);
return middle(drawing.getBoundingClientRect());
"""
TIP = """const tip = document.getElementById("tip");
return tip.style.display === "block" ? [...tip.children].map((each) => each.textContent) : [];"""
OPEN = "return document.getElementById('case').open"


@pytest.mark.parametrize("by, width", [("mouse", 1280), ("touch", 390), ("keyboard", 1280)])
def test_a_mark_shows_its_case_in_eight_lines(browser, pages, by, width):
    browser.size(width, 900)
    browser.open(pages["report"])
    assert browser.run(TIP) == []
    if by == "keyboard":
        browser.run("document.querySelector('figure').focus()")
        browser.rest()
        browser.press("right")
    else:
        place = browser.run(MARK, 0)
        browser.rest()
        browser.point(by, *place)
    message = browser.wait_for(TIP)
    assert 3 <= len(message) <= 8 and any("GFLOP/s" in line for line in message)
    inside = "const box = document.getElementById('tip').getBoundingClientRect();"
    assert browser.run(inside + "return box.left >= 0 && box.right <= innerWidth")
    if by == "mouse":
        browser.point(by, *browser.run(MARK, 0), press=True)
    elif by == "keyboard":
        browser.press("right")
        assert browser.run(TIP) != message
        browser.press("enter")
    else:
        browser.run("document.getElementById('tip').click()")
    assert browser.wait_for(OPEN) and browser.run(TIP) == []
    fields = "return document.querySelectorAll('#case tbody tr').length"
    assert browser.run(fields) > 20
    browser.run("document.querySelector('#case button').click()")
    assert not browser.run(OPEN) and browser.complaints() == []


def test_the_table_filters_sorts_and_turns_pages(browser, pages):
    browser.size(1280, 900)
    browser.open(pages["many"])
    shown = "return document.getElementById('shown').textContent"
    assert browser.run(shown) == "1 to 100 of 2187 of 2187 cases"
    browser.run("document.getElementById('after').click()")
    assert browser.run(shown).startswith("101 to 200")
    browser.run("document.getElementById('before').click()")
    ask = (
        "const box = document.getElementById('filter'); box.value = arguments[0];"
        "box.dispatchEvent(new Event('input'));"
    )
    browser.run(ask, "stationary=C median_s<0.0001")
    found = browser.run(shown)
    assert found.endswith("of 2187 cases") and not found.startswith("none")
    browser.run(ask, "foo>3")
    assert browser.run(shown).startswith("no column is called foo")
    browser.run(ask, "")
    column = (
        "const head = [...document.querySelectorAll('#cases th')].map((each) => "
        "each.textContent.split(' ')[0]).indexOf('median_s');"
    )
    click = column + "document.querySelectorAll('#cases th button')[head].click();"
    cells = column + "return [...document.querySelectorAll('#cases tbody tr')].map((row) => "
    cells += "row.children[head].textContent)"
    browser.run(click)
    rising = browser.run(cells)
    assert rising == sorted(rising, key=float) and len({len(each) for each in rising}) == 1
    browser.run(click)
    falling = browser.run(cells)
    assert falling == sorted(falling, key=float, reverse=True) and falling[0] > rising[0]
    wide = "return document.querySelectorAll('#cases th').length"
    few = browser.run(wide)
    browser.run("document.getElementById('all').click()")
    assert browser.run(wide) > few and browser.complaints() == []


def test_every_control_of_the_explain_page_answers(browser, pages):
    browser.size(1280, 900)
    browser.open(pages["two"])
    state = (
        "return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done("
        "[document.getElementById('time').value, document.getElementById('rank').value, "
        "document.getElementById('play').textContent]))))"
    )
    for control in ("after", "before", "play"):
        before = browser.run(state)
        browser.run(f"document.getElementById('{control}').click()")
        assert browser.run(state) != before, control
    browser.run("document.getElementById('play').click()")
    browser.run(
        "const rank = document.getElementById('rank'); rank.value = 5;"
        "rank.dispatchEvent(new Event('change'))"
    )
    assert browser.run(state)[1] == "5"
    for key in ("home", "right", "down", " "):
        before = browser.run(state)
        browser.press(key)
        assert browser.run(state) != before, key
    browser.press(" ")
    browser.run("document.querySelector('.in').click(); document.querySelector('.out').click()")
    for details in ("everyone", "numbers"):
        browser.run(f"const one = document.querySelector('.{details}'); one.open = !one.open;")
    assert browser.complaints() == []

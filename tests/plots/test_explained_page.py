"""``drbench explain``: the page of a run, in a real browser, against an independent reading of the
simulator's events."""

import json
import re
from collections import Counter

import pytest
from pages import EVIL, Elements

from drbench.launch.cases.case import DESCRIPTION_FIELDS, Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.explained import explained, explained_timeline
from drbench.launch.models.predict import predict_with, programs_of
from drbench.measure.timeline import chrome_trace
from drbench.plan.explain import traffic
from drbench.plots.report.explained import TICKS, explained_page

#: Lane of each step by the first word of an event; the page reads the steps instead.
MEANS = {
    "Gemm": "multiply",
    **dict.fromkeys(("Get", "ReplicaGet", "Take"), "fetch"),
    **dict.fromkeys(("Put", "Push", "Offer"), "send"),
    **dict.fromkeys(("Accumulate", "Add"), "add"),
    **dict.fromkeys(("Copy", "Zero", "Scale"), "copy"),
    **dict.fromkeys(("Fence", "Await"), "wait"),
    **dict.fromkeys(("Shift", "AllGather", "Broadcast", "Reduce", "ReduceScatter"), "collective"),
}


def of(text, ranks=4, machine="h100x8", sizes=(512, 512, 512), **values):
    """Case, machine and ranks: layouts, or an algorithm; ``values`` that no case has are options of
    the program."""
    fields = {name: values.pop(name) for name in ("transpose", "transport") if name in values}
    layouts = text.split() if " " in text else ()
    fields |= {} if layouts else {"algorithm": text}
    return Case(*sizes, *layouts, options=values, **fields), machine, ranks


#: A case of every type. The first is that of the paper's figures.
COLUMNS, LARGE = "column column column", (4096, 4096, 4096)
CASES = {
    "column S-C": of(COLUMNS, 12, "pvc12", LARGE, stationary="C"),
    "column S-B": of(COLUMNS, 12, "pvc12", LARGE, stationary="B"),
    "replicas S-A": of("row/c2 column/c3 block/c2", 12, "pvc12", (1000, 900, 800), stationary="A"),
    "transposed": of("row tiles:96x80@2x3 block", 6, "pvc12", (600, 700, 800), transpose="ab"),
    "throttled": of("row row row", 4, "pvc12", transport="throttled:1,5"),
    "pending": of("S(0) S(1) P", 4, None, stationary="A"),
    "signals": of(COLUMNS, 12, "pvc12", LARGE, stationary="A", sums="push"),
    "lowered": of(COLUMNS, 4, "pvc12", LARGE, schedule="greedy"),
    "ag_gemm": of("ag_gemm"),
    "gemm_rs": of("gemm_rs"),
    "ag_moe": of("ag_moe", experts=8, topk=2),
    "moe_rs": of("moe_rs", experts=8, topk=2),
    "dispatch_moe": of("dispatch_moe", experts=8, topk=2),
    "moe_combine": of("moe_combine", experts=8, topk=2),
    "cannon": of("cannon"),
    "summa2.5d": of("summa2.5d", 8, None),
}


#: Those of which it is known what a rank holds.
COVERED = ("column S-C", "column S-B", "replicas S-A", "transposed")


def made(name):
    """A case of CASES with its machine."""
    case, machine, ranks = CASES[name]
    return case, machine and find_machine(machine), ranks


@pytest.fixture(scope="module")
def described():
    """name -> the data of the page."""
    known = {}

    def find(name):
        if name not in known:
            known[name] = explained(*made(name))
        return known[name]

    return find


@pytest.fixture
def opened(browser, tmp_path):
    """Write a page and open it: ``opened(described, ...)``."""

    def open_(*cases):
        path = tmp_path / "page.html"
        path.write_text(explained_page(cases, "test"), encoding="utf-8")
        browser.size(1280, 900)
        browser.open(path)
        return browser

    yield open_
    assert browser.complaints() == []


def moments(events):
    """Three moments at which no event begins or ends: in the middle of gaps about a quarter, a half
    and three quarters through; and the end."""
    edges = sorted({edge for event in events for edge in event[4:6]})
    whole, found = edges[-1], []
    gaps = [(low + high) / 2 for low, high in zip(edges, edges[1:]) if high - low > 1e-5 * whole]
    for share in (0.25, 0.5, 0.75):
        found.append(min(gaps, key=lambda middle: abs(middle - share * whole)))
    return found, whole


SHOWN = """
const input = document.getElementById("time");
input.value = arguments[0]; input.dispatchEvent(new Event("input"));
return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(
  [...document.querySelectorAll(`[data-case="${arguments[1]}"] .now tbody tr`)].map((row) => ({
    does: [...row.querySelectorAll("span")].map((each) => [each.dataset.does,
      Number(each.dataset.step), each.textContent]),
    holds: row.lastChild.dataset.steps, text: row.lastChild.textContent }))))));
"""


def at(browser, tick, case=0):
    """The rows of the table of all ranks at a time of the slider."""
    return browser.run(SHOWN, round(tick), case)


def held(mine, time_s):
    """The steps of fetched values and results that a rank holds at a time: until their last use."""
    memory, uses = {}, {}  # step -> the step that owns its memory; that -> last use
    for event in mine:
        onto = re.search(r"-> %(\d+)", event.name)
        memory[event.index] = memory[int(onto[1])] if onto else event.index
        for value in map(int, re.findall(r"%(\d+)", event.name)):
            root = memory.get(value)
            uses[root] = max(uses.get(root, 0.0), event.stop_s)
    since = lambda event: event.start_s if event.name.startswith("Gemm") else event.stop_s
    return {
        event.index
        for event in mine
        if memory[event.index] == event.index and since(event) <= time_s < uses.get(event.index, 0)
    }


@pytest.mark.parametrize("name", CASES)
def test_the_page_shows_the_simulation_at_three_times(name, described, opened):
    """What each rank does, from whom it fetches, and what it holds."""
    case, model, ranks = made(name)
    events = predict_with(case, model, ranks, timeline=True)[1].timeline if model else None
    if events is None:  # the page's own balance of FLOPs and bytes; read from its bars by name
        programs = programs_of(case, find_machine("h100x8"), ranks, everyone=True)
        events = [
            (rank, "", bar[0], repr(programs.traces[rank].steps[bar[0]]), *bar[2:4])
            for rank, bars in enumerate(described(name)["ranks"])
            for bar in bars
        ]
    times, whole = moments(events)
    browser = opened(described(name))
    assert described(name)["time_s"] == pytest.approx(whole)
    named = {(event[0], event[2]): event[3] for event in events}
    seen = 0
    for time_s in times:
        rows = at(browser, time_s / whole * TICKS)
        expected = Counter(
            (rank, MEANS[text.partition("(")[0]], step)
            for rank, _, step, text, start, stop in events
            if start <= time_s < stop
        )
        found = [(rank, *each) for rank, row in enumerate(rows) for each in row["does"]]
        assert Counter(each[:3] for each in found) == expected
        seen += len(found)
        for rank, does, step, text in found:
            block = re.search(r"Get\((\w+ᵀ?\[[^\]]*\])@(\d+)", named[rank, step])
            if does == "fetch" and block:  # the same elements, from the same rank
                matrix, place = block[1].split("[")
                assert f"{matrix.rstrip('ᵀ')}[{place} from {block[2]} " in text
        for rank, row in enumerate(rows if name in COVERED else ()):
            mine = sorted((each for each in events if each.rank == rank), key=lambda e: e.index)
            assert {int(step) for step in row["holds"].split()} == held(mine, time_s)
    assert seen


@pytest.mark.parametrize("name", CASES)
def test_every_byte_of_the_plan_is_shown_once_and_fetched_from_its_owner(name, described):
    found, (case, model, ranks) = described(name), made(name)
    if model is not None:
        traces = programs_of(case, model, ranks, everyone=True).traces
        shown = [sum(move[2] for bar in bars for move in bar[8]) for bars in found["ranks"]]
        assert shown == [sum(traffic(trace).counters.values()) for trace in traces]
    for rank, bars in enumerate(found["ranks"]):
        for step, does, *_, reads, writes, moves, _ in bars:
            assert all(rank in move[:2] and move[0] != move[1] for move in moves)
            if does == "multiply" and "moe" not in name:
                a, b = (found["regions"][each] for each in reads)
                (c,) = (found["regions"][each] for each in writes)
                assert (a[0], b[0], c[0]) == ("A", "B", "C"), step
                assert a[3] == b[2] and a[2] == c[2] and b[3] == c[3]
            if does == "fetch" and moves and "gemm" not in name and "moe" not in name:
                (region,) = writes
                assert owners(found, region) == {moves[0][0]} and moves[0][1] == rank


def owners(found, region):
    """The ranks whose tiles the elements of a region are in, element by element."""
    name, replica, rows, cols = found["regions"][region]
    matrix = next(each for each in found["matrices"] if each["name"] == name)

    def coordinates(segments, ranges):
        place = lambda x: next(at for stop, at in segments if x < stop)
        return {place(x) for low, high in ranges for x in range(low, high)}

    down, across, copies = matrix["places"]
    return {
        down[i] + across[j] + copies[replica]
        for i in coordinates(matrix["rows"], rows)
        for j in coordinates(matrix["cols"], cols)
    }


def test_two_cases_share_one_time(described, opened):
    first, second = described("column S-C"), described("column S-B")
    browser = opened(first, second)
    longest = max(first["time_s"], second["time_s"])
    for number, case in enumerate((first, second)):
        rows = at(browser, 0.4 * TICKS, number)
        found = {(rank, each[1]) for rank, row in enumerate(rows) for each in row["does"]}
        assert found == {
            (rank, bar[0])
            for rank, bars in enumerate(case["ranks"])
            for bar in bars
            if bar[2] <= 0.4 * longest < bar[3]
        }
    ratio = browser.run("return document.querySelector('.facts tbody td:last-child').textContent")
    assert float(ratio.split()[0]) == pytest.approx(second["time_s"] / first["time_s"], rel=0.01)


def timeline_of(name, **described):
    """The simulated timeline of a case as a trace, whose texts can be changed."""
    record, found = predict_with(*made(name), timeline=True)
    description = {each: getattr(record, each) for each in DESCRIPTION_FIELDS}
    return chrome_trace(found.timeline, description | described)


def test_a_simulated_timeline_shows_the_same_as_the_simulation(described):
    for name in ("column S-B", "cannon", "gemm_rs", "moe_rs", "transposed", "lowered"):
        again = explained_timeline(timeline_of(name), made(name)[1])
        rounded = lambda ranks: [[[*bar[:2], *bar[5:]] for bar in bars] for bars in ranks]
        assert rounded(again["ranks"]) == rounded(described(name)["ranks"]), name
        assert again["links"] and again["name"] == described(name)["name"]


def test_texts_of_a_timeline_add_no_element():
    trace = timeline_of("cannon", label=EVIL[1])
    page = explained_page([explained_timeline(trace, None)], "test")
    elements = Elements(page)
    assert "img" not in {tag for tag, _ in elements.found} and "&lt;img" in page
    elements.check_safe()


def test_a_timeline_of_another_program_is_refused():
    with pytest.raises(Exception, match="which is not in the program. Use the timeline with"):
        explained_timeline(timeline_of("cannon", k=1024), None)
    with pytest.raises(Exception, match="--timeline: this is no trace"):
        explained_timeline(json.dumps({"traceEvents": []}), None)

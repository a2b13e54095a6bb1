"""The report is one page that loads nothing, shows every case, and runs nothing that a record
says."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from made_up import of_universal

from drbench.measure.record import append_csv
from plots.report.page import build, environments, page

EVIL = [
    "<script>window.struck=1</script>",
    "</script><img src=x onerror=window.struck=1>",
    "\"><svg onload='window.struck=1'>",
    "{{7*7}}{% raw %}",
    "line\nbreak\u2028\u2029",
    '<a href="javascript:window.struck=1">x</a>',
    "=cmd()",
    "$(id);`id`",
    "../../etc/passwd",
    "<!--",
    "&lt;b&gt;",
    "\x00\x07",
]


def case(m=64, **values):
    known = {"best_s": 1e-3, "median_s": 2e-3, "samples_s": [1e-3, 2e-3], "phase_gemm_s": 5e-4}
    known |= {"get_bytes": 4096, "percent_of_roof": 50.0, "roof_gflops": 9.0}
    return of_universal(m=m, **{**known, **values})


def failed(**values):
    return case(
        **{
            "status": "timeout",
            "reason": "no end in 60 s",
            "best_s": None,
            "median_s": None,
            "samples_s": [],
            "percent_of_roof": None,
            **values,
        }
    )


def hostile():
    """Records with an evil text in every field that takes one, and the environment file of their
    folder."""
    records = []
    for number, text in enumerate(EVIL):
        records += [
            case(
                m=number + 1,
                machine=text,
                algorithm=text,
                preset=text,
                a=text,
                b=text,
                c=text,
                mesh=text,
                transport=text,
                blas=text,
                environment=text,
            ),
            case(m=number + 1, machine="here", preset=text, b=text),
            failed(m=number + 1, reason=text, algorithm=text),
        ]
    return records


class Elements(HTMLParser):
    """Every element with its attributes, and the text of those that hold data or code."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.scripts, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def evil_page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evil")
    append_csv(folder / "records.csv", *hostile())
    (folder / "environment.json").write_text(json.dumps({text: {"value": text} for text in EVIL}))
    return build(folder)


def test_records_and_environment_add_no_element_and_no_attribute(evil_page):
    plain = Elements(page([case(), failed()], [], "x"))
    evil = Elements(evil_page)
    assert {tag for tag, _ in evil.found} - {tag for tag, _ in plain.found} <= {
        "tbody",
        "table",
        "td",
        "th",
        "tr",
    }
    assert {tag: 1 for tag, _ in evil.found}.keys() & {
        "img",
        "svg",
        "iframe",
        "object",
        "base",
        "form",
    } == set()
    assert len(evil.scripts) == 3
    attributes = {name for _, attrs in evil.found for name in attrs}
    assert not any(name.startswith("on") for name in attrs_of(evil)) and attributes <= {
        name for _, attrs in plain.found for name in attrs
    } | {"scope", "class"}


def attrs_of(elements):
    return {name for _, attrs in elements.found for name in attrs}


def test_embedded_data_is_the_records_and_holds_no_markup(evil_page):
    text = Elements(evil_page).scripts[0]
    assert not set("<>&") & set(text)
    data = json.loads(text)
    reasons = {row[data["fields"].index("reason")] for row in data["rows"]}
    assert {record.reason for record in hostile()} == reasons
    assert len(data["rows"]) == len(hostile())


def test_texts_that_plotly_reads_as_html_are_escaped(evil_page):
    figures = json.loads(Elements(evil_page).scripts[0])["figures"]

    def texts(value):
        if isinstance(value, dict):
            for key, item in value.items():
                yield from (
                    (("name", item),)
                    if key in ("name", "text") and isinstance(item, str)
                    else texts(item)
                )
                if key == "ticktext":
                    yield from (("tick", each) for each in item)
        elif isinstance(value, list):
            for item in value:
                yield from texts(item)

    found = [text for _, text in texts(list(figures))]
    assert any("&lt;script&gt;" in text for text in found) and not any(
        "<" in text for text in found
    )


def test_the_policy_admits_the_two_scripts_of_the_page_and_nothing_from_elsewhere(evil_page):
    elements = Elements(evil_page)
    policy = next(
        attrs["content"]
        for tag, attrs in elements.found
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert (
        rules["default-src"] == "'none'"
        and "unsafe" not in rules["script-src"]
        and "http" not in policy
    )
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in elements.scripts[1:]
    ]
    assert rules["script-src"].split() == hashes
    for tag, attrs in elements.found:
        for name in ("src", "href", "action", "data"):
            assert attrs.get(name, "#").startswith(("#", "data:,")), (tag, attrs)


def test_counts_failures_and_provenance_are_there(tmp_path):
    append_csv(
        tmp_path / "records.csv",
        case(),
        case(m=128),
        failed(m=256),
        failed(m=512, status="out_of_memory", reason="needs 9 GiB, 1 GiB is free"),
    )
    (tmp_path / "environment.json").write_text(
        json.dumps({"git": {"commit": "abc123", "dirty": False}, "hosts": ["n1", "n2"]})
    )
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "e1.json").write_text("{")
    text = build(tmp_path)
    for said in (
        "4 cases",
        "2 ok",
        "1 timeout",
        "1 out_of_memory",
        "no end in 60 s",
        "needs 9 GiB, 1 GiB is free",
        "git.commit",
        "abc123",
        "n1, n2",
    ):
        assert said in text, said
    assert re.search(r"environments/e1.json</h3>\s*<p class=\"note\">does not read: ", text)
    assert "strong: no shape of 2 was run on more than one number of ranks" in text


def test_a_missing_environment_file_is_said(tmp_path):
    assert environments(tmp_path) == [
        {
            "name": "environment.json",
            "rows": [],
            "trouble": "there is no environment.json beside the records",
        }
    ]


def test_every_mark_names_its_record():
    records = [case(m=m, best_s=0.1 * m, stationary=each) for m in (64, 128) for each in "ABC"]
    text = page(records, [], "x")
    data = json.loads(Elements(text).scripts[0])
    volume = [
        figure
        for figure in data["figures"]
        if figure["layout"]["xaxis"]["title"]["text"].startswith("bytes moved")
    ]
    shown = sorted(
        number for figure in volume for trace in figure["data"] for number in trace["customdata"]
    )
    assert shown == list(range(6))
    at = data["fields"].index
    for figure in volume:
        for trace in figure["data"]:
            if not trace["customdata"]:
                continue  # the line of the same work without communication
            for x, y, number in zip(trace["x"], trace["y"], trace["customdata"], strict=True):
                assert (x, y) == (4096, data["rows"][number][at("best_s")])
        assert figure["layout"]["yaxis"]["title"]["text"] == "best time (s)"


def test_the_same_folder_gives_the_same_page(tmp_path):
    append_csv(tmp_path / "records.csv", case(), failed())
    assert build(tmp_path) == build(tmp_path)


def test_numbers_that_json_has_not_are_empty():
    text = page([case(percent_of_roof=float("nan"), roof_gflops=float("inf"))], [], "x")
    assert "NaN" not in Elements(text).scripts[0] and "Infinity" not in Elements(text).scripts[0]


@pytest.mark.timeout(110)
def test_a_browser_draws_the_page_and_runs_nothing_of_the_records(tmp_path):
    browser = next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (found := shutil.which(name))
        ),
        None,
    )
    if browser is None:
        pytest.skip("no chromium on this machine")
    records = [
        case(m=64, algorithm=text, machine="here", preset=EVIL[0], a=text, mesh=text)
        for text in EVIL
    ] + [failed(reason=text) for text in EVIL]
    evil_page = page(
        records,
        [{"name": EVIL[0], "rows": [(text, text) for text in EVIL], "trouble": EVIL[1]}],
        EVIL[0],
    )
    (tmp_path / "report.html").write_text(evil_page, encoding="utf-8", errors="replace")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr",
        "--v=0",
        "--virtual-time-budget=5000",
        "--dump-dom",
        (tmp_path / "report.html").as_uri(),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert "CONSOLE" not in ended.stderr, [
        line for line in ended.stderr.splitlines() if "CONSOLE" in line
    ]
    shown = re.sub(r"<script.*?</script>", "", ended.stdout, flags=re.DOTALL)
    assert "main-svg" in shown  # plotly drew
    # and the table is there
    assert f"{len(records)} cases" in shown and shown.count("<tr>") > len(records)
    drawn = Elements(shown)
    assert "img" not in {tag for tag, _ in drawn.found} and not any(
        name.startswith("on") for name in attrs_of(drawn)
    )
    assert not any(
        "javascript" in (value or "").lower()
        for _, attrs in drawn.found
        for name, value in attrs.items()
        if "href" in name
    )

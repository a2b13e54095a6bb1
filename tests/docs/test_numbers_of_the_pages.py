"""Every measured number of the pages comes from a committed record, or says why it does not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import made_up
from pandas import DataFrame

from docs.check import __main__ as command
from docs.check import records, tables, values
from docs.check.page import EXEMPT, Page, PageError, split

ROOT = records.ROOT


def measured(text: str) -> list[str]:
    return [number.text for number in Page(text).numbers if number.measured]


@pytest.fixture
def known(monkeypatch):
    """A value and a table of the test's own."""
    rates = lambda n=1: [10.04 * each for each in range(1, n + 1)]
    monkeypatch.setitem(values.FUNCTIONS, "rate", rates)
    monkeypatch.setitem(values.FUNCTIONS, "rate_two", lambda: 20.08)
    monkeypatch.setitem(
        tables.FUNCTIONS, "rates", lambda: "| a | rate |\n|---|---|\n| x | 10.0 |\n"
    )


def findings(text: str) -> list[str]:
    return [str(each) for each in command.check(text, "page.md")]


@pytest.mark.parametrize("path", command.pages(), ids=lambda path: path.name)
def test_a_page_says_what_the_records_say(path):
    assert [str(each) for each in command.check(path.read_text("utf-8"), path.name)] == []


def test_the_first_page_the_artifact_and_all_of_docs_are_checked():
    names = {path.name for path in command.pages()}
    assert {"README.md", "ARTIFACT.md", "performance.md", "peers.md", "reproduction.md"} <= names


@pytest.mark.parametrize(
    "text, found",
    [
        ("takes 12 ms and 3.5 s", ["12", "3.5"]),
        ("at 281 GFLOP/s, 20 GB/s, 16 MiB, 7 µs", ["281", "20", "16", "7"]),
        ("20 to 30 %, 7, 12 and 27 %, 0.98–1.02", ["20", "30", "7", "12", "27", "0.98", "1.02"]),
        ("on 4 ranks, m = 1024, 64 × 64 tiles", []),
        ("ahead on 6 of 7 shapes", ["6", "7"]),
        ("96 cases and 55 aligned cases", ["96", "55"]),
        ("twice as long, 2 times as long", ["2"]),
        ("`12 ms` and [12](x/12.5.md)", []),
        ("version 5.0.2, float32, 4096³, 4096^3, 2.5-D, mlp1, §5.2", []),
        ("−3 % and +4.1 points, 16384×1", ["−3", "+4.1"]),
        ("```\n12 ms\n```\n    13 ms in code\n", ["13"]),
        ("text\n\n    12 ms in code\n\nmore 3 ms", ["3"]),
        ("| p | t |\n|---|---|\n| 9 | 13 (11–15) |\n| 1 | 16 ms, S |", ["13", "11", "15", "16"]),
        ("| p | factor |\n|---|---|\n| 12 | 4 replicas |", []),
        ("batch 8192, 80 % at 64.4/65.6", ["80", "64.4", "65.6"]),
        ("a line that ends in 12\n  ms, and 13<!-- limit --> ms", ["12", "13"]),
    ],
)  # fmt: skip
def test_what_counts_as_a_measured_number(text, found):
    assert measured(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "It takes 10.0 ms<!-- = rate() -->.",
        "It takes 10 ms<!-- = rate -->, or 10.04<!-- = rate() --> ms.",
        "They take 10 and 20 ms<!-- = rate(2) -->.",
        "They take 10 on 4 ranks, 20 ms<!-- = rate; _; rate_two -->.",
        "At most 110 %<!-- limit -->, 2 to 3 ms<!-- estimate --> and 4.1<!-- version -->.",
        "1.5 and, later, 2.5 ms<!-- example*2 -->",
        "<!-- all: version -->\n| a | 3.11 |\n| b | 4.5 |\n",
        "<!-- all: example -->\n```\n12 ms\n```",
        "<!-- docs: rates() -->\n| a | rate |\n|---|---|\n| x | 10.0 |\n<!-- docs: end -->\n",
        "On 4 ranks with 1024 rows.",
    ],
)
def test_a_number_with_a_value_or_an_exemption_is_right(known, text):
    assert findings(text) == []


@pytest.mark.parametrize(
    "text, said",
    [
        ("It takes 10.1 ms<!-- = rate() -->.", "says 10.1, the records 10.0"),
        ("They take 10 and 21 ms<!-- = rate(2) -->.", "says 21, the records 20"),
        ("It takes 10.0 ms.", "10.0 has neither record nor exemption"),
        ("5 ms, or at most 110 %<!-- limit -->.", "5 has neither"),
        ("1.5 and, later, 2.5 ms<!-- example -->", "1.5 has neither"),
        ("5 ms, on 64<!-- limit --> ranks", "5 has neither"),
        ("| a | 3 |\n\n<!-- all: limit -->\n| b | 4 |", "3 has neither"),
        ("<!-- docs: rates() -->\n| a | rate |\n|---|---|\n| x | 10.1 |\n<!-- docs: end -->\n",
         "page.md:4: rates() gives"),
        ("<!-- docs: rates() -->\n<!-- docs: end -->\n", "gives more lines"),
        ("![x](images/none.png)", "docs/images/none.png is not in results/figures.toml"),
    ],
)  # fmt: skip
def test_a_wrong_number_is_found_and_one_without_a_source(known, text, said):
    (found,) = findings(text)
    assert said in found


@pytest.mark.parametrize(
    "text, said",
    [
        ("10 ms<!-- = speed() -->", "there is no 'speed'"),
        ("10 ms<!-- = rate(open('x')) -->", "no name(constants)"),
        ("10 ms<!-- = rate(3) -->", "gives 3 numbers, and 1 stand before it"),
        ("10 ms<!-- because -->", "says neither where"),
        ("ten<!-- limit -->", "no number stands before"),
        ("<!-- docs: rates() -->\n| a |\n", "docs: end --> follows"),
        ("<!-- docs: none() -->\n<!-- docs: end -->", "there is no 'none'"),
        ("10 ms<!-- = rate('a') -->", "TypeError"),
    ],
)
def test_a_comment_that_means_nothing_is_an_error(known, text, said):
    with pytest.raises(PageError, match=re.escape(said)):
        findings(text)


def test_a_changed_record_is_found(monkeypatch, tmp_path):
    """The pieces of performance.md, with one number of the file changed."""
    name = f"{records.CORE}/performance/pieces.csv"
    text = (records.RESULTS / name).read_text()
    (tmp_path / name).parent.mkdir(parents=True)
    was = records.only(records.core("pieces"), axis="m", pieces=8).time_over_whole
    (tmp_path / name).write_text(text.replace(str(was), "1.31", 1))
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    page = "<!-- docs: core_pieces() -->\n" + tables.core_pieces() + "<!-- docs: end -->\n"
    said = round(100 * was - 100)
    prose = f"{said} %<!-- = piece('m', 8) -->"
    records.rows.cache_clear()
    try:
        assert "31" in str(findings(page))
        assert f"says {said}, the records 31" in str(findings(prose))
    finally:
        records.rows.cache_clear()


def test_writing_puts_numbers_and_tables_right_and_leaves_the_rest(known):
    text = (
        "It takes 99.9 ms<!-- = rate() -->, 98 to 97<!-- = rate(2) -->, 5 ms<!-- limit -->.\n\n"
        "<!-- docs: rates() -->\nold\n<!-- docs: end -->\nend\n"
    )
    made = command.filled(text)
    assert made == text.replace("99.9", "10.0").replace("98 to 97", "10 to 20").replace(
        "old\n", tables.FUNCTIONS["rates"]()
    )
    assert findings(made) == [] and command.filled(made) == made


def test_the_command_counts_and_fails(known, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("10.0 ms<!-- = rate() --> and 5 ms<!-- limit: set -->", encoding="utf-8")
    assert command.main([str(page), "--list"]) == 0
    out = capsys.readouterr().out
    assert "page.md:1: limit: set: 5" in out
    assert "1 numbers and 0 blocks are those of the records; exempt: 1 limit; 0 to mend" in out
    page.write_text("10.0 ms<!-- = rate() --> and 5 ms", encoding="utf-8")
    assert command.main([str(page)]) == 1
    assert "page.md:1: 5 has neither" in capsys.readouterr().err
    page.write_text("11.0 ms<!-- = rate() -->", encoding="utf-8")
    assert command.main([str(page)]) == 1 and command.main([str(page), "--write"]) == 0
    assert page.read_text("utf-8").startswith("10.0 ms")


def test_every_exemption_says_what_it_is_for():
    assert all(EXEMPT.values())


@given(
    value=st.floats(-1e6, 1e6),
    decimals=st.integers(0, 4),
    sign=st.sampled_from(["", "+", "−", "-"]),
)
def test_a_written_value_is_the_value_at_the_precision_of_the_page(value, decimals, sign):
    printed = f"{sign}1{'.' + '0' * decimals if decimals else ''}"
    (number,) = Page(f"It is {printed} ms").numbers
    told = number.written(value)
    assert float(told.replace("−", "-")) == pytest.approx(value, abs=0.5 * 10**-decimals * 1.001)
    assert len(told.partition(".")[2]) == decimals
    again = Page(f"It is {told} ms").numbers
    assert [each.written(value) for each in again] == [told]


WORDS = st.sampled_from(["over", "(or", "m = 512,", "`8 ms`", "rank", "4096³", "v1.2.3", "P12:"])


@given(before=st.lists(WORDS), after=st.lists(WORDS), number=st.integers(0, 9999))
def test_a_number_with_a_unit_is_found_in_any_surroundings(before, after, number):
    text = " ".join([*before, f"takes {number} ms", *after])
    assert measured(text) == [str(number)]


@given(st.text(alphabet="`|<!-> \n1.5%ms-–#=;:()", max_size=80))
def test_any_text_is_read(text):
    try:
        page = Page(text)
    except PageError:
        return
    for number in page.numbers:
        assert text[number.start : number.stop] == number.text


def test_expressions_are_split_outside_of_quotes():
    assert split(' = a("x; y");\n b ; _'[2:]) == ['a("x; y")', "b", "_"]


@pytest.mark.parametrize("path", command.pages(), ids=lambda path: path.name)
def test_lines_fit_a_screen(path):
    """120 columns; a row of a table cannot be wrapped and has 160."""
    long = [
        number
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > (160 if line.startswith("|") else 120)
    ]
    assert long == []


def test_bars_are_held_against_what_uneven_work_allows(monkeypatch):
    row = {"percent_of_roof_low": 79.0, "percent_of_roof_high": 82.0, "noisy": False, "bar": 0.93}
    made = DataFrame(
        [
            row | {"case": "even", "percent_of_roof": 92.0, "balance_limit": None},
            row | {"case": "uneven", "percent_of_roof": 81.0, "balance_limit": 0.855},
        ]
    )
    monkeypatch.setattr(tables, "core", lambda section, **fields: made)
    lines = tables.core_ratios("cube").splitlines()
    assert lines[0].split(" | ")[2] == "limit by balance"
    assert lines[2].endswith("|  | 0.93 | no |") and lines[3].endswith("| 0.85 | 0.93 | yes |")
    old = made.drop(columns="balance_limit")
    monkeypatch.setattr(tables, "core", lambda section, **fields: old)
    assert "balance" not in tables.core_layers(256)
    assert tables.core_layers(256).count("| no |") == 2


def test_collectives_of_mpi_stand_next_to_those_through_shared_memory_where_recorded(monkeypatch):
    row = {"percent_of_roof_low": 1.0, "percent_of_roof_high": 99.0, "noisy": False}
    made = DataFrame(
        [
            row | {"case": "summa LS", "collectives": "direct", "percent_of_roof": 97},
            row | {"case": "summa LS", "collectives": "mpi", "percent_of_roof": 88},
            row | {"case": "wang RS", "collectives": "mpi", "percent_of_roof": 96},
        ]
    )
    monkeypatch.setattr(tables, "core", lambda section, **fields: made)
    assert tables.core_collectives().splitlines()[2:] == [
        "| summa LS | 0.88 (0.01–0.99) | 0.97 (0.01–0.99) |",
        "| wang RS | 0.96 (0.01–0.99) |  |",
    ]


def test_peers_are_shown_as_they_come_and_at_their_best(monkeypatch):
    """Six rounds: cosma takes twice as long as it comes, and with a forced split 1.1 times."""
    made = []
    for turn in range(1, 7):
        for who, label, seconds in (
            ("drbench", "row", 1.0),
            ("cosma", "its own choice", 2.0),
            ("cosma", "pk2", 1.1),
        ):
            made.append(
                made_up(
                    case=f"{turn} | square 8 | {who} | {label}",
                    best_s=seconds,
                    median_s=seconds,
                    samples_s=[seconds],
                    gflops=1.0,
                )
            )
    monkeypatch.setattr(tables, "records", lambda name: made)
    assert tables.peers_best("here/peers-p2").splitlines()[2] == (
        "| square 8 | row 1000 ms | 2.00 (2.00–2.00), cosma | "
        "1.10 (1.10–1.10), cosma pk2 | 2000 ms | pk2 1100 ms | – / – |"
    )

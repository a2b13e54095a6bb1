"""Every table fits a terminal of 80 columns, has the columns of the answer, and names those that
are left out."""

import re

import pytest
from made_up import made_up

from drbench.launch.commands.completion import NAMES
from drbench.launch.host.show import brief_record

#: Commands, and what their first lines and their tables have.
ANSWERS = """
tune -m 2Ki -n 8Ki -k 2Ki --machine h100x8 --preset row --effort 1 | You:  row | time | layouts
chain --preset llama3-70b:mlp --machine h100x8 -p 2 -m 256 | astest: | time | memory a rank
simulate -m 4Ki -n 4Ki -k 4Ki --machine pvc12 --preset row | Predicted: | time spent | moved
plan -m 64 -n 64 -k 64 -p 4 --preset 2.5d --rank all | universal, Stationary | rank | get
compare results/measured/epyc-2core/mlp1-h1536-p2 --limit 3 | S-C block | time | layouts
"""


@pytest.mark.parametrize("line", ANSWERS.strip().splitlines())
def test_columns_of_the_answer_are_shown_at_80_columns(run_cli, monkeypatch, line):
    words, answer, *columns = line.split(" | ")
    monkeypatch.setenv("COLUMNS", "80")
    shown = run_cli(*words.split()).stdout
    assert answer in shown.splitlines()[0] and all(column in shown for column in columns)
    check_width(shown)


@pytest.mark.parametrize("kind", NAMES)
def test_a_list_is_one_line_each_and_fits_the_terminal(run_cli, monkeypatch, kind):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run_cli("list", kind).stdout.splitlines()
    assert all(len(line) <= 80 for line in lines) and len(lines) >= len([*NAMES[kind]()])


def check_width(text):
    """A table begins with its rule, and ends with an empty line."""
    inside = False
    for line in text.splitlines():
        inside = bool(re.match(" ?─", line)) or (inside and bool(line.strip()))
        assert not inside or len(line) <= 80, line


def test_columns_that_are_left_out_are_named(run_cli, monkeypatch):
    words = "tune -m 512 -n 512 -k 512 -p 4 --preset row --top 2 -v".split()
    monkeypatch.setenv("COLUMNS", "200")
    wide = run_cli(*words).stdout
    assert "Not shown" not in wide
    monkeypatch.setenv("COLUMNS", "80")
    narrow = " ".join(run_cli(*words).stdout.split())
    (left,) = re.findall(r"Not shown in 80 columns: (.*?)\. ", narrow)
    assert all(name in wide for name in left.split(", "))


#: Commands, and names in their line.
BRIEF = """
simulate --machine pvc12 | time_s gflops percent_of_gemm_only moved_bytes
plan -p 4 | steps flops get_bytes tile_bytes pool_bytes
tune -p 4 | busiest_bytes your_busiest_bytes pays_after_multiplications a b c algorithm
tune --machine h100x8 --effort 1 | time_s your_time_s pays_after_multiplications
"""


@pytest.mark.parametrize("line", BRIEF.strip().splitlines())
def test_brief_is_one_line_of_names_and_values(run_cli, line):
    words, _, names = line.partition(" | ")
    words += " -m 512 -n 512 -k 512 --preset row --brief"
    (shown,) = run_cli(*words.split()).stdout.splitlines()
    first, *pairs = shown.split(" ")
    values = dict(pair.split("=", 1) for pair in pairs)
    assert first == "drbench" and {*names.split()} <= {*values}
    assert [values[name] for name in ("m", "dtype", "a")] == ["512", "float32", "row"]
    assert {*"n k ranks b c algorithm".split()} <= {*values}
    for name, value in values.items():
        if name.endswith(("_s", "_bytes", "gflops")) and value != "-":
            float(value)


def test_brief_has_the_reason_of_a_case_that_is_not_ok():
    line = brief_record(made_up(status="out_of_memory", reason="3 GiB are missing", m=8))
    assert " status=out_of_memory " in line and line.endswith(" reason=3_GiB_are_missing")

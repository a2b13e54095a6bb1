"""``make bench-quick``: bars held against made-up records; nothing is measured."""

import csv
import json

import pytest

from benchmarks import core, quick
from benchmarks.quick import Bar, again, exit_code, ratio_bar, ratios, split, times

COMMAND = "MPIR_CVAR_NOLOCAL=1 drbench run -p 2 -m 64 -n 64 -k 64 --iters 5 --a=tiles:15x11@2x1"
CASES = [("one_node", "row, S-C", {"table": "cube"}), ("one_node", "row, S-B", {"table": "cube"})]


def record(percent, low, high, **more):
    known = {"status": "ok", "percent_of_roof": percent, "noisy": False}
    return known | {"percent_of_roof_low": low, "percent_of_roof_high": high} | more


@pytest.fixture
def committed(tmp_path):
    """Two bars of 0.95; 0.97 and 0.94 were reached."""
    with open(tmp_path / "one_node.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["case", "table", "bar", "percent_of_roof", "command"])
        writer.writerow(["row, S-C", "rma", 0.1, 50.0, "another table"])
        writer.writerow(["row, S-C", "cube", 0.95, 97.0, COMMAND])
        writer.writerow(["row, S-B", "cube", 0.95, 94.0, COMMAND])
    return tmp_path


@pytest.mark.parametrize(
    "percent, verdict, code",
    [
        ((99.0, 98.0, 100.0), "met", 0),
        ((94.0, 92.0, 96.0), "not told apart", 0),
        ((94.0, 93.0, 94.9), "missed", 1),
        ((94.0, None, None), "missed", 1),
    ],
)
def test_a_bar_is_missed_if_the_whole_interval_is_below_it(committed, percent, verdict, code):
    asked = []
    rerun = lambda command: asked.append(command) or record(*percent)
    bars = list(ratios(committed, lambda: 1.0, rerun, CASES[:1]))
    assert asked == [COMMAND]
    assert [(bar.bar, bar.committed, bar.verdict) for bar in bars] == [(0.95, 0.97, verdict)]
    assert exit_code(bars) == code
    noisy = ratio_bar("x", {"bar": "0.95"}, record(*percent, noisy=True))
    assert exit_code([noisy]) == 0


def test_uneven_work_is_held_against_what_the_busiest_rank_allows():
    row = {"bar": "0.93", "percent_of_roof": "80.0", "balance_limit": "0.855"}
    bar = ratio_bar("x", row, record(81.0, 80.0, 82.0, balance_limit=0.855))
    assert bar.today == pytest.approx(0.81 / 0.855) and bar.verdict == "met"
    assert bar.committed == pytest.approx(0.80 / 0.855)
    assert ratio_bar("x", row, record(81.0, 80.0, 82.0)).verdict == "missed"


def test_what_is_left_out_when_the_time_is_over_or_was_never_measured_is_said(committed):
    left = iter([1.0, -1.0])
    unknown = ("nowhere", "summa LS", {"how": "direct"})
    rerun = lambda command: record(99.0, 98.0, 100.0)
    bars = list(ratios(committed, lambda: next(left), rerun, [*CASES, unknown]))
    assert [bar.verdict for bar in bars] == [
        "met",
        "no time left",
        "no committed row: make bench",
    ]
    assert bars[1].committed == 0.94 and exit_code(bars) == 0
    refused = lambda command: {"status": "failed", "reason": "no"}
    (failed,) = ratios(committed, lambda: 1.0, refused, CASES[:1])
    assert failed.verdict == "no"


def test_a_recorded_command_runs_again_with_its_environment_and_fewer_repeats(monkeypatch):
    env, ranks, words = split(COMMAND)
    assert (env, ranks, words[-1]) == ({"MPIR_CVAR_NOLOCAL": "1"}, 2, "--a=tiles:15x11@2x1")
    asked = {}
    monkeypatch.setattr(
        core, "run", lambda ranks, *words, env: asked.update(ranks=ranks, words=words, env=env)
    )
    again(COMMAND)
    assert asked["ranks"] == 2 and asked["env"] == env
    assert asked["words"] == (*words, *quick.REPEATS)  # the last of an option counts
    with pytest.raises(ValueError, match="no drbench run"):
        split("python benchmarks/core.py planning")


def test_times_are_to_stay_below_their_bars(tmp_path):
    (tmp_path / "executor.csv").write_text("case,median_s\nS-C,4e-06\n")
    made = {
        "executor": lambda *_: [{"case": "S-C", "median_s": 2e-6, "bar_s": 3e-6}],
        "planning": lambda *_: [
            {"case": "64", "median_s": 0.5, "least_s": 0.4, "most_s": 0.6, "bar_s": 0.3}
        ],
    }
    step, plan = times(tmp_path, made)
    assert (step.verdict, step.committed, plan.verdict) == ("met", 4e-6, "missed")
    assert exit_code([step, plan]) == 1


def test_each_case_is_one_that_the_benchmark_measures():
    """Of the sections whose rows are committed, the row is there."""
    for section, case, fields in quick.CASES:
        assert section in core.SECTIONS
        rows = quick.committed_rows(quick.COMMITTED, section)
        found = [
            row
            for row in rows
            if row["case"] == case and all(row.get(key) == value for key, value in fields.items())
        ]
        assert len(found) == 1 or not rows, (section, case)


def test_the_table_and_the_file_say_the_same(committed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quick, "times", lambda folder: [])
    monkeypatch.setattr(
        quick,
        "ratios",
        lambda folder, left: [Bar("a", 0.95, 0.90, 0.89, 0.91, 0.97), Bar("b", 0.9, 0.95)],
    )
    out = tmp_path / "bars.json"
    assert quick.main(["--committed", str(committed), "--out", str(out)]) == 1
    shown_ = capsys.readouterr().out
    assert "0.90 (0.89-0.91)" in shown_ and "-7 %" in shown_ and "missed" in shown_
    told = json.loads(out.read_text())
    assert [bar["verdict"] for bar in told] == ["missed", "met"]


@pytest.mark.parametrize(
    "section, count", [("one_node", 42), ("layers", 40), ("collectives", 8), ("remote", 15)]
)
def test_a_section_has_a_row_for_each_of_its_cases(monkeypatch, section, count):
    """What runs is made up: a section that cannot be run is found before half an hour is spent."""
    asked = []

    def run(ranks, *arguments, env=None):
        asked.append((*arguments, *(env or {})))
        return {"percent_of_roof": 98.0, "command": "drbench run"}

    monkeypatch.setattr(core, "run", run)
    rows = list(core.SECTIONS[section](4096, "--iters 5 --budget 8"))
    assert len(rows) == len(asked) == len({*asked}) == count
    assert all(row["percent_of_roof"] == 98.0 and row["case"] for row in rows)

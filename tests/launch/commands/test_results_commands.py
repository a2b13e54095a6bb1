"""``drbench plot``, ``report`` and ``compare`` from the command line, bad input included."""

import csv
import json
import re
from pathlib import Path

import pytest
from made_up import of_universal

from drbench.measure.record_file import append_csv

SWEEP = Path(__file__).parents[3] / "results/measured/epyc-2core/mlp1-h1536-p2"


def case(m=64, factor=1.0, **values):
    known = {"ranks": 2, "best_s": factor, "median_s": factor, "samples_s": [factor] * 5}
    return of_universal(m=m, **{**known, "percent_of_gemm_only": 50.0 / factor, **values})


@pytest.fixture
def files(tmp_path):
    append_csv(tmp_path / "old.csv", case(), case(m=128))
    append_csv(tmp_path / "new.csv", case(), case(m=128, factor=1.5, reason="=cmd()"))
    (tmp_path / "text.csv").write_text("hello\n")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_plot_writes_the_figure_and_reports_what_is_missing(run_cli, files):
    ended = run_cli("plot", "mlp1", files / "old.csv", "-o", files / "fig.png")
    assert ended.returncode == 0 and ended.stdout == f"figure: {files / 'fig.png'}\n"
    assert (
        "mlp1: not drawn: UA - Column" in ended.stderr
        and (files / "fig.png").read_bytes()[:4] == b"\x89PNG"
    )


@pytest.mark.parametrize(
    "arguments, text",
    [
        ((), "NAME is missing"),
        (("pie", "old.csv"), "no figure is called 'pie'"),
        (("mlp2", "old.csv"), "no case of mlp2 in 2 records"),
        (("mlp1", "old.csv", "--quantity", "peak"), "no percent_of_peak in its records"),
        (("volume", "old.csv", "--shape", "4x4"), "a shape is MxNxK"),
        (
            ("volume", "old.csv", "--shape", "4x4x4"),
            "no case of shape 4x4x4; there are 64x256x64, 128x256x64",
        ),
        (("volume", "old.csv", "-o", "fig.bmp"), "got '.bmp'"),
        (("old.csv", "absent.csv"), "does not exist"),
        (("volume", "empty"), "holds no CSV file"),
        (
            ("libraries", "old.csv", "--quantity", "peak"),
            "figure libraries has no use for --quantity",
        ),
    ],
)
def test_plot_refuses_in_one_line(run_cli, files, arguments, text, monkeypatch):
    monkeypatch.chdir(files)
    assert text in run_cli("plot", *arguments).refusal()
    assert not list(files.glob("*.p*"))


def test_report_writes_a_page_next_to_the_records(run_cli, files):
    (files / "sweep").mkdir()
    append_csv(files / "sweep" / "records.csv", case())
    ended = run_cli("report", files / "sweep")
    assert ended.returncode == 0 and str(files / "sweep" / "report.html") in ended.stdout
    assert (files / "sweep" / "report.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("empty",), "holds no CSV file"),
        (("old.csv", "-o", "no/x.html"), "no folder no"),
    ],
)
def test_report_refuses_in_one_line(run_cli, files, arguments, text, monkeypatch):
    monkeypatch.chdir(files)
    assert text in run_cli("report", *arguments).refusal()


def test_compare_exits_1_on_a_regression_and_names_it(run_cli, files):
    ended = run_cli("compare", files / "old.csv", files / "new.csv", "--csv", files / "pairs.csv")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert (
        re.search("slower +1.500 +1.500 +m 128", ended.stdout)
        and "2 cases at tolerance 5 %: 1 slower, 1 same" in ended.stdout
    )
    with open(files / "pairs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["outcome"], row["m"], row["best_ratio"]) for row in rows] == [
        ("slower", "128", "1.5"),
        ("same", "64", "1.0"),
    ]
    assert rows[0]["new_reason"] == "'=cmd()"


def test_compare_exits_0_within_the_tolerance(run_cli, files):
    assert (
        run_cli("compare", files / "old.csv", files / "new.csv", "--tolerance", "0.6").returncode
        == 0
    )
    assert run_cli("compare", files / "new.csv", files / "old.csv").returncode == 0


def test_compare_of_one_side_lists_the_cases_of_each_problem_best_first(run_cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run_cli("compare", SWEEP, "--limit", 3).stdout
    assert (
        text.count(" measured: undecided: ")
        == text.count("float32, 2 ranks")
        == text.count("... and 9 more")
        == 4
    )
    problems = text.split("float32, 2 ranks")[1:]
    for problem in problems:
        header, *rows = (line for line in problem.splitlines() if re.search("time|[mu]s ", line))
        assert re.match(r" +time +% of GEMM-only +A, B, C +algorithm", header)
        times = [float(row.split()[0]) for row in rows if re.match(r" *[\d.]+ [mu]s ", row)]
        assert len(times) == 3 and times == sorted(times)


@pytest.mark.parametrize("mode", ["measured", "published"])
def test_compare_of_one_side_shows_unknown_names_as_recorded(run_cli, files, mode):
    append_csv(files / "plugin.csv", case(algorithm="numpy", options="width=2", mode=mode))
    ended = run_cli("compare", files / "plugin.csv")
    assert ended.returncode == 0 and "numpy width 2" in ended.stdout


def test_compare_prints_one_json_object(run_cli, files):
    ended = run_cli("compare", files / "old.csv", files / "new.csv", "--json")
    found = json.loads(ended.stdout)
    assert (
        ended.returncode == 1
        and found["summary"]["slower"] == 1
        and [each["outcome"] for each in found["cases"]] == ["slower", "same"]
    )


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("old.csv", "--json"), "--json belongs to NEW"),
        (("old.csv", "--csv", "x.csv"), "--csv belongs to NEW"),
        (("old.csv", "--tolerance", "0.2"), "--tolerance belongs to NEW"),
        (("old.csv", "absent.csv"), "does not exist"),
        (("old.csv", "text.csv"), "another header"),
        (("old.csv", "new.csv", "--tolerance", "-1"), "not in the range"),
    ],
)
def test_compare_refuses_in_one_line(run_cli, files, arguments, text, monkeypatch):
    monkeypatch.chdir(files)
    assert text in run_cli("compare", *arguments).refusal()

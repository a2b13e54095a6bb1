"""``drbench plot``, ``report`` and ``compare`` from the command line, bad input included."""

import csv
import json
import re
import shlex
from pathlib import Path

import pytest
from made_up import of_universal

from drbench.launch.commands.cli import main
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
    ended = run_cli("plot", "mlp1", files / "old.csv", "--save", files / "fig.png")
    assert ended.returncode == 0 and ended.stdout == f"figure: {files / 'fig.png'}\n"
    assert "mlp1: not drawn: UA - Column" in ended.stderr
    assert (files / "fig.png").read_bytes()[:4] == b"\x89PNG"


def test_report_writes_a_page_next_to_the_records(run_cli, files):
    (files / "sweep").mkdir()
    append_csv(files / "sweep" / "records.csv", case())
    ended = run_cli("report", files / "sweep")
    assert ended.returncode == 0 and str(files / "sweep" / "report.html") in ended.stdout
    assert (files / "sweep" / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_compare_exits_1_on_a_regression_beyond_the_tolerance_and_names_it(run_cli, files):
    both = "compare", files / "old.csv", files / "new.csv"
    ended = run_cli(*both, "--csv", files / "pairs.csv")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.startswith("1 slower, 1 same of 2 cases (±5 %).")
    assert re.search(r" m 128 .* \+50 % +slower", ended.stdout)
    rows = list(csv.DictReader((files / "pairs.csv").open(newline="")))
    found = [(row["outcome"], row["m"], row["best_ratio"]) for row in rows]
    assert found == [("slower", "128", "1.5"), ("same", "64", "1.0")]
    assert rows[0]["new_reason"] == "'=cmd()"
    ended = run_cli(*both, "--json")
    found = json.loads(ended.stdout)
    assert ended.returncode == 1 and found["summary"]["slower"] == 1
    assert [each["outcome"] for each in found["cases"]] == ["slower", "same"]
    assert run_cli(*both, "--tolerance", "0.6").returncode == 0
    assert run_cli("compare", files / "new.csv", files / "old.csv").returncode == 0


def test_a_comparison_that_decides_nothing_or_lacks_cases_fails_unless_it_is_allowed(
    run_cli, files
):
    """Cases were missing, all failed or all were noisy, and the exit code was 0."""
    bad = [case(m=m, status="wrong", reason="row 0") for m in (64, 128)]
    append_csv(files / "half.csv", case())
    append_csv(files / "bad.csv", *bad)
    append_csv(files / "noisy.csv", case(noisy=True, factor=2.0), case(m=128, noisy=True, factor=3))
    for sides, word in (
        (("old.csv", "half.csv"), "missing"),
        (("bad.csv", "bad.csv"), "failing"),
        (("old.csv", "noisy.csv"), "noisy"),
    ):
        words = ["compare", *(files / name for name in sides)]
        ended = run_cli(*words)
        assert ended.returncode == 1 and f"(--allow {word})" in ended.stdout.splitlines()[-1]
        ended = run_cli(*words, "--allow", word)
        assert ended.returncode == 0 and "--allow" not in ended.stdout
        assert json.loads(run_cli(*words, "--json").stdout)["fails"]
    broken = run_cli("compare", files / "old.csv", files / "bad.csv", "--allow", "failing")
    assert broken.returncode == 1
    listed = run_cli("compare", files / "bad.csv")
    assert listed.returncode == 1 and "no case is ok: 2 wrong" in listed.stdout
    assert "2 cases, such as universal S-C row: wrong: row 0" in listed.stdout
    assert run_cli("compare", files / "bad.csv", "--allow", "failing").returncode == 0


def test_settings_of_one_file_or_of_two_are_compared(run_cli, files):
    for threads, name in ((1, "one.csv"), (2, "two.csv")):
        rows = [case(m=m, threads=threads, factor=2.0 / threads) for m in (64, 128)]
        append_csv(files / name, *rows)
        append_csv(files / "both.csv", *rows)
    two = (files / "one.csv", files / "two.csv")
    assert "--by threads compares these" in run_cli("compare", *two).refusal()
    for words in ((*two, "--by", "threads"), (files / "both.csv", "--by", "threads=1,2")):
        ended = run_cli("compare", *words)
        assert (ended.returncode, ended.stderr) == (0, "threads differs: 1 and 2\n")
        assert "2 faster" in ended.stdout and "-50 %" in ended.stdout
    assert "--by threads: it needs" in run_cli("compare", two[0], "--by", "threads").refusal()
    assert "Did you mean threads" in run_cli("compare", *two, "--by", "thread").refusal()


def test_what_a_table_leaves_out_is_shown_by_the_command_that_it_names(run_cli, tmp_path):
    path = tmp_path / "two words.csv"
    append_csv(path, *(case(a=f"row/c{2**n}", factor=1.0 + n) for n in range(5)))
    text = run_cli("compare", path, "--limit", 2).stdout
    (command,) = re.findall("3 more: drbench (compare .* --limit 5)", text)
    assert run_cli(*shlex.split(command)).stdout.count("universal") >= 5


def test_compare_of_one_side_lists_the_cases_of_each_problem_best_first(run_cli):
    text = run_cli("compare", SWEEP, "--limit", 3).stdout
    assert text.count("float32, 2 ranks") == text.count("9 more: ") == 4
    for problem in text.split("float32, 2 ranks")[1:]:
        times = [
            float(each) for each in re.findall(r"^ *(?:[~±=?]+ )?([\d.]+) [mµ]s ", problem, re.M)
        ]
        assert len(times) == 3 and times == sorted(times)


@pytest.mark.parametrize("mode", ["measured", "published"])
def test_compare_of_one_side_shows_unknown_names_as_recorded(run_cli, files, mode):
    append_csv(files / "plugin.csv", case(algorithm="numpy", options="width=2", mode=mode))
    ended = run_cli("compare", files / "plugin.csv")
    assert ended.returncode == 0 and "numpy width 2" in ended.stdout


def test_a_bug_while_drawing_is_no_wrong_use(files, monkeypatch, capsys):
    def buggy(*_, **__):
        raise ValueError("math domain error")

    monkeypatch.setattr("drbench.plots.registry.draw", buggy)
    assert main(["plot", "mlp1", str(files / "old.csv")]) == 5
    assert "Traceback" in capsys.readouterr().err


def test_the_best_cases_are_drawn_where_a_partition_is_unknown(run_cli, files):
    append_csv(files / "unknown.csv", case(a=None), case(k=None))
    assert run_cli("plot", "best", files / "unknown.csv", "--save", files / "x.txt").returncode == 0

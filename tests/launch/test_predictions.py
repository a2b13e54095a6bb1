"""``drbench.simulate``, ``drbench.tune`` and ``drbench.explain`` answer as the commands do, and
refuse what these refuse, without MPI."""

import json
import subprocess
import sys

import pytest

import drbench
from drbench.errors import OutOfMemory, UnsupportedError, UsageError
from drbench.launch.commands.cli import main

SIZES = "-m 1024 -n 3072 -k 768 -p 2 --machine h100x8".split()
ROWS = drbench.Case(1024, 3072, 768, preset="row")


def printed(capsys, *words):
    assert main([*words, *SIZES, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_prediction_is_that_of_the_command(capsys):
    record = printed(capsys, "simulate", "--preset", "row")
    found = drbench.simulate(ROWS, "h100x8", 2)
    assert (found.time_s, *found.interval_s) == tuple(
        record[name] for name in ("best_s", "median_low_s", "median_high_s")
    )
    assert found.layouts == ("row", "row", "row") and found.algorithm == "universal S-C"
    assert str(found).startswith("Predicted: ")


def test_a_choice_is_that_of_the_command(capsys):
    how = "--preset row --only universal --effort 0 --fix c --top 3".split()
    asked = printed(capsys, "tune", *how)
    found = drbench.tune(ROWS, "h100x8", 2, only=["universal"], effort=0, fix="c", top=3)
    assert [each.command for each in found.ranking] == [
        each["command"] for each in asked["ranking"]
    ]
    assert {each.layouts[2] for each in found.ranking} == {"row"}
    assert [1e-3 * row["time_ms"] for row in found.rows()] == pytest.approx(
        [each["record"]["best_s"] for each in asked["ranking"]]
    )
    assert found.answer.startswith("You:  row: ")


def test_a_case_without_layouts_has_no_yours():
    found = drbench.tune(drbench.Case(64, 64, 64), "h100x8", 2, only=["universal"], effort=0, top=1)
    assert found.yours is None and len(found.ranking) == 1


def test_a_page_of_two_cases_compares_them(tmp_path):
    columns = drbench.Case(1024, 3072, 768, preset="column")
    page = drbench.explain(ROWS, "h100x8", 2, other=columns)
    assert page.verdict.count("\n") == 2 and page.verdict in str(page)
    assert page.save(tmp_path / "page.html").read_text("utf-8") == page.html


@pytest.mark.parametrize(
    "function, case, words, error, why",
    [
        (drbench.simulate, ROWS, {"machine": "h100"}, UsageError, "Did you mean h100x8"),
        (drbench.simulate, ROWS, {"ranks": 9}, UsageError, "has 8 devices"),
        (drbench.simulate, drbench.Case(0, 8, 8), {}, UsageError, "m must be"),
        (drbench.simulate, drbench.Case(8, 8, 8, preset="rows"), {}, Exception, "unknown preset"),
        (drbench.simulate, drbench.Case(8, 8, 8, options={"chunks": 3}), {}, UsageError, "chunks"),
        (drbench.simulate, drbench.Case(8, 8, 8, dtype="int8"), {}, UsageError, "dtype must be"),
        (
            drbench.simulate,
            drbench.Case(9, 9, 9, algorithm="cannon"),
            {"ranks": 3},
            UnsupportedError,
            "square process mesh",
        ),
        (drbench.simulate, drbench.Case(1 << 20, 1 << 20, 8), {}, OutOfMemory, "needs"),
        (drbench.tune, ROWS, {"fix": "d"}, UsageError, "got 'd'"),
        (drbench.tune, drbench.Case(8, 8, 8), {"fix": "a"}, UsageError, "fix names matrices"),
        (drbench.tune, ROWS, {"replication": "some"}, UsageError, "got 'some'"),
        (drbench.explain, ROWS, {"other": drbench.Case(8, 8, 0)}, UsageError, "k must be"),
    ],
)
def test_what_makes_no_sense_is_refused(function, case, words, error, why):
    with pytest.raises(error, match=why):
        function(case, **{"machine": "h100x8", "ranks": 2} | words)


def test_the_names_of_the_package_load_no_mpi():
    code = (
        "import sys, drbench\n"
        "drbench.simulate(drbench.Case(8, 8, 8), 'h100x8', 2)\n"
        "assert {'Case', 'simulate', 'tune', 'explain'} <= {*dir(drbench)}\n"
        "print('mpi4py.MPI' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("False\n", "")

"""``--arbitration``: every command that predicts takes it, and records say it."""

import pytest

from drbench.measure.record_file import read_csv
from launch.cases.machine_models import find_machine

SIZES = ["-m", "1024", "-n", "4096", "-k", "1024", "--machine", "h100x8"]
#: Stationary A on rows: many accumulate into the same ranks.
CASE = ["--preset", "row", "--c", "column", "--stationary", "A"]


def told(say, rule):
    return say("simulate", *SIZES, *CASE, "--arbitration", rule, "--json").json()


def test_a_prediction_says_how_links_were_shared_and_none_is_the_models_own(say):
    fair, fifo = told(say, "fair"), told(say, "fifo")
    assert (fair["arbitration"], fifo["arbitration"]) == ("fair", "fifo")
    assert fair["best_s"] != fifo["best_s"] and fair["accumulate_bytes"] == fifo["accumulate_bytes"]
    own = say("simulate", *SIZES, *CASE, "--json").json()
    assert (own["arbitration"], own["best_s"]) == ("fair", fair["best_s"])
    assert find_machine("pvc12").arbitration == "fifo"  # as its file says


def test_every_command_that_predicts_takes_it(say, tmp_path):
    search = ["-p", "4", *SIZES, "--only", "universal", "--replication", "none"]
    best = say("tune", *search, "--arbitration", "fifo", "--csv", str(tmp_path / "a.csv"))
    assert best.returncode == 0
    assert {row.arbitration for row in read_csv(tmp_path / "a.csv")} == {"fifo"}
    page = tmp_path / "page.html"
    shown = ["explain", "-p", "4", *SIZES, *CASE, "--save", str(page)]
    assert say(*shown, "--arbitration", "fifo").returncode == 0
    chain = ["chain", "-m", "256", "--widths", "64,128,64", "-p", "2", "--machine", "h100x8"]
    table = str(tmp_path / "chain.csv")
    assert say(*chain, "--arbitration", "fifo", "--csv", table).returncode == 0
    assert {row.arbitration for row in read_csv(table)} == {"fifo"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", *SIZES[:6], "-p", "2"],
        ["tune", *SIZES[:6], "-p", "2"],
    ],
)
def test_without_a_machine_there_are_no_links_to_share(say, arguments):
    assert "--arbitration" in say(*arguments, "--arbitration", "fair").refusal()

"""``--machine NAME,arbitration=RULE``: every command that predicts takes it, and records say it."""

from drbench.measure.record_file import read_csv
from launch.cases.machine_models import find_machine

SIZES = ["-m", "1024", "-n", "4096", "-k", "1024"]
#: Stationary A on rows: many accumulate into the same ranks.
CASE = ["--preset", "row", "--c", "column", "--stationary", "A"]
FIFO = ["--machine", "h100x8,arbitration=fifo"]


def told(say, machine):
    return say("simulate", *SIZES, *CASE, "--machine", machine, "--json").json()


def test_a_prediction_says_how_links_were_shared_and_none_is_the_models_own(say):
    fair, fifo = (told(say, f"h100x8,arbitration={rule}") for rule in ("fair", "fifo"))
    assert (fair["arbitration"], fifo["arbitration"]) == ("fair", "fifo")
    assert fair["best_s"] != fifo["best_s"] and fair["accumulate_bytes"] == fifo["accumulate_bytes"]
    own = told(say, "h100x8")
    assert (own["arbitration"], own["best_s"]) == ("fair", fair["best_s"])
    assert find_machine("pvc12").arbitration == "fifo"  # as its file says


def test_every_command_that_predicts_takes_it(say, tmp_path):
    search = ["-p", "4", *SIZES, *FIFO, "--only", "universal", "--replication", "none"]
    best = say("tune", *search, "--json", "--top", "1")
    assert best.json()["ranking"][0]["record"]["arbitration"] == "fifo"
    page = ["--save", str(tmp_path / "page.html")]
    assert say("explain", "-p", "4", *SIZES, *CASE, *FIFO, *page).returncode == 0
    chain = ["chain", "-m", "256", "--widths", "64,128,64", "-p", "2", *FIFO]
    table = str(tmp_path / "chain.csv")
    assert say(*chain, "--csv", table).returncode == 0
    assert {row.arbitration for row in read_csv(table)} == {"fifo"}

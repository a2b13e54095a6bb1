"""``--machine NAME,arbitration=RULE``: records say it."""

from launch.cases.machine_models import find_machine

SIZES = "-m 1024 -n 4096 -k 1024".split()
#: Stationary A on rows: many accumulate into the same ranks.
CASE = "--preset row --c column --stationary A".split()


def told(say, machine):
    return say("simulate", *SIZES, *CASE, "--machine", machine, "--json").json()


def test_a_prediction_says_how_links_were_shared_and_none_is_the_models_own(say):
    fair, fifo = (told(say, f"h100x8,arbitration={rule}") for rule in ("fair", "fifo"))
    assert (fair["arbitration"], fifo["arbitration"]) == ("fair", "fifo")
    assert fair["best_s"] != fifo["best_s"] and fair["accumulate_bytes"] == fifo["accumulate_bytes"]
    own = told(say, "h100x8")
    assert (own["arbitration"], own["best_s"]) == ("fair", fair["best_s"])
    assert find_machine("pvc12").arbitration == "fifo"  # as its file says

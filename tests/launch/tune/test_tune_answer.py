"""The answer of tune equals a full search: the best for the layouts of today, the best of all,
after how many multiplications a change pays, counted one by one, and the memory that some rank
needs whatever the schedule."""

import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest

from drbench.launch.cases.case import Case
from drbench.launch.commands.predict.tune import merged
from drbench.launch.tune.counts import count_case, least_bytes
from drbench.launch.tune.rank import tune
from drbench.launch.tune.request import TuneRequest
from drbench.model.machine import Machine

DEVICE = Machine.from_dict(
    {
        "name": "device",
        "compute": {"peak_flops": 1e9, "launch_s": 1e-6},
        "links": {"wire": {"bandwidth_bytes_per_s": 2e7, "latency_s": 1e-6}},
    }
)
TODAY = ("row", "tiles:25x36@2x2", "block")
REQUEST = TuneRequest(
    Case(96, 128, 64),
    4,
    ("universal", "summa"),
    replication="equal",
    today=TODAY,
    multiplications=50,
)


@pytest.fixture(scope="module", params=[None, DEVICE], ids=["bytes", "time"])
def answered(request):
    """A machine, or None, the request, and the answer; a machine tries candidates one by one."""
    asked = replace(REQUEST, replication="none") if request.param else REQUEST
    return request.param, asked, tune(asked, request.param)


def test_the_time_of_todays_layouts_is_that_of_a_search_with_all_layouts_given(answered):
    machine, asked, found = answered
    case = replace(asked.case, **dict(zip("abc", TODAY)))
    fixed = replace(asked, case=case, today=(None,) * 3)
    assert found.mine.cost == tune(fixed, machine).ranking[0].cost
    assert found.better and (found.times_better is None or found.times_better > 1)


def test_it_pays_after_so_many_multiplications_and_not_one_earlier(answered):
    machine, _, found = answered
    first = found.ranking[0]
    stays, goes = 0.0, first.moving.busiest_bytes if machine is None else first.moving.seconds
    assert goes > 0
    multiplications = 0
    while goes > stays * (1 + 1e-12):
        multiplications += 1
        stays, goes = stays + found.mine.cost, goes + first.cost
    assert found.pays_after == multiplications


def test_the_best_layout_is_left_alone():
    """The answer reports that today's layout is already the best, under another name too."""
    request = replace(REQUEST, case=Case(64, 64, 64), today=("row/c4", "block:1x4", "column"))
    found = tune(request)
    assert (found.better, found.times_better, found.pays_after) == (False, None, None)
    assert found.mine.cost == 0


def test_layouts_that_do_not_fit_the_memory_are_reported():
    found = tune(replace(REQUEST, today=("R", "R", "R"), memory=60_000))
    assert found.mine is None and "candidates fits" in found.why_not
    assert found.ranking[0].memory <= 60_000


def test_rows_need_the_stored_and_the_fetched_bytes_and_no_layout_less_than_the_bound():
    """All by rows, C staying: of 8 ranks one has 96 rows of A and C, and needs all of B."""
    case = Case(768, 8, 16, a="row", b="row", c="row", options={"stationary": "C"})
    assert count_case(case, 8).needed == 4 * (96 * 16 + 16 * 8 + 96 * 8)
    found = tune(TuneRequest(Case(512, 512, 512), 8, ("universal", "summa"), replication="none"))
    assert min(place.counts.needed for place in found.ranking) == least_bytes(
        Case(512, 512, 512), 8
    )
    assert found.ranking[0].case.a == "grid:2x2x2"


WORDS = "tune -p 4 -m 96 -n 128 -k 64 --effort 3 --replication equal --top 4".split()


def test_the_first_three_lines_answer(run_cli):
    given = [*WORDS, "--preset", "row", "--b", "column"]
    mine, best, pays, *more = run_cli(*given).stdout.splitlines()
    found = run_cli(*given, "--json").json()
    assert mine.startswith("You:  AC row · B column: ") and best.startswith("Best by bytes: ")
    assert "times fewer bytes" in best
    assert f" {found['pays_after_multiplications']} multiplications, " in pays
    assert any(found["ranking"][0]["command"] in line for line in more)
    assert found["mine"]["layouts"] == ["row", "column", "row"] and found["machine"] is None
    assert found["pays_after_multiplications"] >= 1
    _, keep, *_ = run_cli(*given, "--fix", "a,b,c").stdout.splitlines()
    assert keep == "Keep them: no change pays within 100 multiplications."


#: Wrong options, and what their refusal says.
WRONG = """
--a colum: did you mean
--fix a: --fix A, and --a gives no partition
--preset row --fix d: some of A,B,C
--only canon: no algorithm 'canon'
--machine pvc21: no machine model
--multiplications 0: --multiplications
--threads 2: --threads belongs to --measure
--backend numpy: --backend belongs to --measure
--iters 5: --iters belongs to --measure
--budget 1: --budget belongs to --measure
--transport rma: --transport belongs to --machine or --measure
-o compute=tf32: -o compute belongs to --machine or --measure
-o prefetch=3: -o prefetch belongs to --machine or --measure
--multiplications 9: --multiplications belongs to --preset or --a or --b or --c
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_wrong_options_are_refused_in_one_line(run_cli, line):
    more, _, message = line.partition(": ")
    assert message.lower() in run_cli(*WORDS, *more.split()).refusal().lower()


@pytest.mark.mpi
def test_the_commands_of_the_answer_run(drbench, run_cli):
    text = run_cli(*WORDS, *"-p 2 --a row --b row --c R --json".split()).json()
    for place in (text["mine"], text["ranking"][0]):
        words = shlex.split(place["command"])[1:]
        ran = drbench(*words, "--iters", 1, "-o", "gemm_only=false", "--json").json()
        assert (ran["status"], ran["error"]) == ("ok", 0)
        assert [ran[each] for each in "abc"] == place["layouts"]


def test_of_measured_variants_the_row_is_that_of_the_least_ratio_in_the_same_rounds():
    """A variant that ran in slower rounds is not the slower one; one that failed is never shown."""
    place = SimpleNamespace(case=Case(8, 8, 8, algorithm="summa"), layouts=("row",) * 3)
    found = SimpleNamespace(ranking=[place] * 3, within=lambda _: [])
    row = lambda at, ratio, median_s: {
        "place": at,
        "what": f"variant {at}",
        "ran": "",
        "marks": "",
        "measured": {"median_s": median_s},
        "measured_to_best": {"ratio": ratio},
    }
    rows = [row(1, None, None), row(2, 1.2, 1.0), row(3, 1.0, 1.1)]
    (shown,) = merged(rows, found, SimpleNamespace(multiplications=1))
    assert (shown["what"], shown["place"]) == ("variant 3, 2 more", 1)

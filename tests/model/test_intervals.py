"""Intervals of predictions: the spread of residuals covers its stated share of new cases, whatever
their distribution; assumed parameters widen it; held-out measurements are inside it."""

import json
import re
from hashlib import sha256
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.model.model import paired
from drbench.errors import UsageError
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.commands.cli import main
from drbench.launch.models.intervals import (
    combine_errors,
    residuals_of,
    swap_arbitration,
    vary_assumed,
)
from drbench.launch.models.predict import predict, programs_of, with_interval
from drbench.model.fit import spread
from drbench.model.machine import Machine
from drbench.plots.select.records import read_records

MEASURED = Path(__file__).parents[2] / "results/measured/spr-2core/model"
SECTION = {
    "name": "toy",
    "compute": {"peak_flops": 1e12, "sustained": 0.8, "launch_s": 1e-6},
    "links": {"wire": {"bandwidth_bytes_per_s": 1e9}},
}
ASSUMED = ["compute.sustained", "links.wire.bandwidth_bytes_per_s", "compute.launch_s"]
CASE = Case(256, 256, 256, "row", "row", "row", options={"stationary": "C"})
DRAWS = {
    "log-normal": lambda random: exp(random.gauss(0.02, 0.05)),
    "skewed": lambda random: exp(0.03 * random.expovariate(1) ** 2),
    "two speeds": lambda random: random.choice([1.0, 1.0, 1.2]) * exp(random.gauss(0, 0.01)),
}


def covered(draw, count, rounds=1500):
    """The share of new draws within the spread of so many others, counted one by one."""
    random, held = Random(count), 0
    for _ in range(rounds):
        low, high = spread([draw(random) for _ in range(count)])
        held += low <= draw(random) <= high
    return held / rounds


@pytest.mark.parametrize("name, count", [*((name, 79) for name in DRAWS), ("log-normal", 15)])
def test_the_spread_covers_its_stated_share_of_next_cases(name, count):
    assert 0.935 <= covered(DRAWS[name], count) <= 0.97


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=90))
def test_a_prediction_is_in_its_own_interval_and_more_error_never_narrows_it(ratios):
    low, high = spread(ratios)
    assert 0 < low <= 1 <= high
    assert spread([ratio**2 for ratio in ratios]) == pytest.approx((low**2, high**2), rel=1e-6)


def test_one_residual_and_wrong_ones_are_refused():
    for wrong in ([1.0], [1.0, 0.0]):
        with pytest.raises(UsageError, match="residuals.any must be (two or more|a number from)"):
            Machine.from_dict(SECTION | {"residuals": {"any": wrong}})


def test_independent_errors_add_up_by_their_squares():
    found = combine_errors([1.0] * 40, 2.0, [[1.0, 4.0], [3.0]])
    assert found.low == pytest.approx(0.5)
    assert log(found.high) == pytest.approx((log(2) ** 2 + log(1.5) ** 2) ** 0.5)


def test_assumed_constants_are_at_their_ends_together_and_no_others_change():
    faster, slower = vary_assumed(Machine.from_dict(SECTION | {"assumed": ASSUMED}))
    text = lambda machine: (
        machine.compute.sustained,
        machine.links[0].bandwidth_bytes_per_s,
        machine.compute.launch_s,
        machine.compute.peak_flops,
    )
    assert text(faster) == pytest.approx((0.88, 1.1e9, 5e-7, 1e12))
    assert text(slower) == pytest.approx((0.8 / 1.1, 1e9 / 1.1, 2e-6, 1e12))


def test_a_file_may_give_the_range_of_a_constant():
    assumed = ["links.*.bandwidth_bytes_per_s by 1.25", "compute.launch_s"]
    ends = vary_assumed(Machine.from_dict(SECTION | {"assumed": assumed}))
    assert [end.links[0].bandwidth_bytes_per_s for end in ends] == pytest.approx([1.25e9, 0.8e9])
    assert [end.compute.launch_s for end in ends] == pytest.approx([5e-7, 2e-6])


def test_a_collective_is_no_more_certain_than_its_launches():
    """A small multiplication is mostly launching and synchronising, whose times are assumed."""
    case, machine = Case(256, 256, 256, algorithm="collective"), find_machine("pvc12")
    record = predict(case, machine, machine.devices)
    found = with_interval(record, case, machine, machine.devices)
    assert found.median_low_s < 0.6 * record.best_s and found.median_high_s > 1.7 * record.best_s


def test_the_interval_covers_the_times_at_the_ends_and_a_model_without_assumptions_has_none():
    section = SECTION | {"arbitration": "fifo"}
    plain = Machine.from_dict(section)
    record = predict(CASE, plain, 4)
    assert with_interval(record, CASE, plain, 4) is record
    exact = {"residuals": {"any": [1.0, 1.0, 1.0]}}
    doubtful = Machine.from_dict(section | {"assumed": ASSUMED} | exact)
    found = with_interval(record, CASE, doubtful, 4)
    faster, slower = (
        predict(CASE, end, 4).best_s / record.best_s for end in vary_assumed(doubtful)
    )
    (other,) = (predict(CASE, end, 4).best_s / record.best_s for end in swap_arbitration(doubtful))
    assert faster < 1 < other < slower  # fair sharing of links is slower here
    assert found.median_low_s == pytest.approx(record.best_s * faster)
    high = exp((log(slower) ** 2 + log(other) ** 2) ** 0.5)
    assert found.median_high_s == pytest.approx(record.best_s * high)
    assert found.percent_of_gemm_only_low == pytest.approx(
        100 * found.local_gemm_s / found.median_high_s
    )
    wider = with_interval(record, CASE, Machine.from_dict(section | {"assumed": ASSUMED}), 4)
    assert wider.median_low_s < found.median_low_s and wider.median_high_s > found.median_high_s
    refused = predict(Case(8, 8, 8, "row", "row", "row", algorithm="cannon"), doubtful, 3)
    assert with_interval(refused, CASE, doubtful, 3) is refused


@pytest.mark.parametrize("a, stationary", [("row", "C"), ("block", "B"), ("tiles:70x90@2x2", "A")])
def test_the_interval_is_the_same_from_programs_that_are_known(a, stationary):
    """Programs with signals depend on the times of the machine, and are made again."""
    machine = find_machine("h100x8,arbitration=fifo")
    signals = stationary != "C"
    options = {"stationary": stationary} | ({} if signals else {"pack": "never"})
    case = Case(256, 512, 256, a, "block", "row", options=options)
    record, made = predict(case, machine, 4), programs_of(case, machine, 4)
    others = [
        made.on(case, other) for other in (*vary_assumed(machine), *swap_arbitration(machine))
    ]
    assert [other is None for other in others] == [signals, signals, False]
    found = with_interval(record, case, machine, 4, made)
    assert found == with_interval(record, case, machine, 4)
    assert found.median_low_s < record.best_s < found.median_high_s


def test_the_residuals_of_the_transport_count():
    residuals = {"rma": [0.9, 1.1] * 20, "direct": [0.99, 1.01] * 20}
    machine = Machine.from_dict(SECTION | {"residuals": residuals})
    assert residuals_of(Machine.from_dict(SECTION), "rma") == []
    assert residuals_of(machine, "rma") == residuals["rma"]
    assert sorted(residuals_of(machine, "auto")) == sorted(sum(residuals.values(), []))
    more = Machine.from_dict(SECTION | {"residuals": residuals | {"any": [0.5, 2.0]}})
    assert residuals_of(more, "throttled:1,5") == [0.5, 2.0]


@pytest.fixture(scope="module")
def pairs():
    """Every case of the model's study on this machine that is not noisy, its prediction, and its
    program: on two ranks blocks are columns."""
    found = {}
    for transport in ("rma", "throttled"):
        place = MEASURED / transport
        names = (read_records([place / f"{name}.csv"]) for name in ("measured", "predicted"))
        table = paired(*names)
        table = table[~table.hollow]
        forms = table[["a", "b", "c"]].replace("block", "column").agg(" ".join, axis=1)
        sizes = table[["m", "n", "k"]].astype(str).agg("x".join, axis=1)
        ratios = table.time_s / table.predicted_s
        found[transport] = [*zip(sizes + " " + forms + " S-" + table.stationary, ratios)]
    return found


def half_of(program, seed):
    return sha256(f"{seed} {program}".encode()).digest()[0] % 2


def test_held_out_programs_of_this_machine_are_in_the_interval_of_the_others(pairs):
    """Programs are dealt to two halves, each fitted and held out once, in several ways."""
    shares, widths = [], []
    for seed in range(10):
        for half in (0, 1):
            held, wide = [], []
            for found in pairs.values():
                low, high = spread([x for name, x in found if half_of(name, seed) == half])
                out = [x for name, x in found if half_of(name, seed) != half]
                held += [low <= x <= high for x in out]
                wide += [(high - low) / 2] * len(out)
            shares.append(fmean(held))
            widths.append(median(wide))
    assert 0.90 <= fmean(shares) <= 0.98 and 0.85 <= min(shares)
    assert median(widths) <= 0.10


def test_every_command_that_predicts_reports_the_interval(capsys, tmp_path):
    case = "-m 512 -n 512 -k 512 -p 2 --machine h100x8".split()
    layouts = ["--preset", "row", "--stationary", "C"]

    def message(*words):
        assert main([words[0], *case, *words[1:]]) == 0
        return capsys.readouterr().out

    record = json.loads(message("simulate", *layouts, "--json"))
    assert record["median_low_s"] < record["best_s"] < record["median_high_s"]
    ends = [f"{1e6 * record[f'median_{end}_s']:.3g}" for end in ("low", "high")]
    assert f"({'-'.join(ends)})" in message("simulate", *layouts)
    few = "tune --only universal --replication none --preset row --top 2".split()
    found = json.loads(message(*few, "--json"))
    places = [place["record"] for place in found["ranking"]]
    assert all(each["median_low_s"] < each["best_s"] for each in places)
    high = places[0]["median_high_s"]
    within = [at for at, each in enumerate(places[1:], 2) if each["best_s"] <= high]
    assert found["within_interval"] == within == [2]
    mine = found["mine"]["record"]
    assert mine["median_low_s"] < mine["median_high_s"]
    assert " 2 " in [line[:3] for line in message(*few, "-v").splitlines() if " =" in line]
    page = tmp_path / "page.html"
    message("explain", *layouts, "--save", str(page))
    assert re.search(r"µs \([\d.]+-[\d.]+\)", page.read_text()) and find_machine("h100x8").assumed

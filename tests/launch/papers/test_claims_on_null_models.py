"""No claim passes on records with meaningless times, unless it is listed here with the reason.

The times of the committed records are replaced: shuffled among rows with the same FLOPs on the same
machine (fixed seeds); by FLOPs over one rate of the machine; by one time for all of them; and local
GEMMs by their FLOPs alone. Claims about measured times use their own limits and no
model, except S1. Claims of arithmetic use no times.
"""

from collections import Counter
from dataclasses import replace
from functools import cache
from math import prod
from random import Random
from statistics import geometric_mean

import pytest
from judging import judged, of_table

from drbench.launch.cases.machine_models import find_machine
from drbench.launch.papers.claims import check_claims

pytestmark = [pytest.mark.papers, pytest.mark.timeout(300)]
NULLS = ("shuffled", "FLOPs alone", "one time", "local GEMMs by FLOPs")
#: Shuffles that are tried, FEW of a claim that is not listed. A claim must be listed if it
#: holds in a quarter of them, and may be if it holds in more than one of ten.
SEEDS, FEW, LISTED, MAY_BE = range(20), 12, 0.25, 0.10

#: (null model, claim) -> why it holds there.
_COMMUNICATION = "it is about what moves, and over which links; local GEMMs of any shape leave it"
_TWO = "one of two methods is ahead at two or three points: shuffles have that in one of six"
_PAIR = "one or two pairs of times, each of which a shuffle leaves in one of two cases"
HOLDS_ALL_THE_SAME = {
    **dict.fromkeys(
        [("local GEMMs by FLOPs", name) for name in ("P1", "P2", "P6", "P10", "P12a")],
        _COMMUNICATION,
    ),
    ("local GEMMs by FLOPs", "P12b"): "DTensor's strategy decides its lines; the level of local "
    "GEMMs is calibrated on the best of them, their shapes hardly count",
    ("shuffled", "P4"): "the fastest of several replication factors is one above 1 by chance",
    ("shuffled", "P5"): "it is about the spread of times, which a shuffle leaves",
    ("shuffled", "P10"): "it is about the spread of times, and the best of many is as often "
    "Stationary C as B",
    ("shuffled", "M11"): "it is about a level that most algorithms have",
    ("FLOPs alone", "M11"): "the paper's case is bound by compute",
    ("one time", "M11"): "the mean of the algorithms has that level",
    ("shuffled", "M25"): "three of the five rows of Table 3 have that level",
    ("shuffled", "F4"): "the best of 48 times is 96 % hidden by chance",
    ("shuffled", "F11"): "a maximum of two, within 25 points",
    ("shuffled", "F15"): "each maximum of two stays in three of four shuffles",
    ("shuffled", "T7"): "its statement is that something is not slower",
    ("FLOPs alone", "T7"): "its statement is that something is not slower",
    ("one time", "T7"): "its statement is that something is not slower",
    ("shuffled", "T14"): _TWO,
    ("shuffled", "T15"): _TWO,
    **dict.fromkeys([("shuffled", name) for name in ("T20", "T25")], _PAIR),
}


def null_times(name, seed, groups, times, flops_s):
    """Other times of rows in groups: each total, the part of its GEMMs, and other parts as far as
    they are known."""
    out = times.copy()
    if name == "local GEMMs by FLOPs":  # other parts stay
        out[:, 0] += flops_s - out[:, 1]
        out[:, 1] = flops_s
    elif name == "FLOPs alone":
        out[:, :2], out[:, 2:] = flops_s[:, None], 0.0
    for key, at in groups.items():
        if name == "shuffled":
            order = list(at)
            Random(f"{seed} {key}").shuffle(order)
            out[at] = times[order]
        elif name == "one time":
            out[at] = geometric_mean(times[at, 0])
    return out


def slicing_flops_s(ran):
    rates = {name: find_machine(name).compute for name in ("pvc12", "h100x8")}
    rates = ran.machine.map({name: c.peak_flops * c.sustained for name, c in rates.items()})
    return 2.0 * ran.m * ran.n * ran.k / ran.ranks / rates


def meshslice_flops_s(ran):
    sustained = find_machine("tpuv4sim-4x4").compute.sustained
    return ran.seconds * ran.utilization_percent / (100 * sustained)


def shares_follow(table, before):
    """Columns that are work over time."""
    rate = {"percent_of_peak", "utilization_percent"} & {*table}
    whole = "best_s" if "best_s" in table else "seconds"
    for name in rate:
        table[name] *= before[whole] / table[whole]
    return table.assign(time_s=table.best_s) if whole == "best_s" else table


def efficiencies_follow(table, before):
    """Columns of overlap, where the rows include the base."""
    base = table.method.isin(["collective", "pytorch"]) & (table["mode"] == "simulated")
    by = [table[name] for name in GROUPS["overlap"][0]]
    base_s = table.seconds.where(base).groupby(by).transform("first")
    hidden = (1 - (table.seconds - table.gemm_s) / (base_s - table.gemm_s)).where(
        base_s != table.gemm_s, 0.0
    )
    known = base_s.notna() & (table["mode"] == "simulated")
    table.loc[known, "speedup"] = base_s / table.seconds
    table.loc[known, "efficiency_percent"] = 100 * hidden
    return table


#: Paper -> what its groups have in common, its times (the total, GEMMs, other parts), the
#: seconds that the FLOPs of rows take, and what follows from the times.
GROUPS = {
    "slicing": (
        ["label", "layer", "m", "lowered"],
        ["best_s", "phase_gemm_s"],
        slicing_flops_s,
        shares_follow,
    ),
    "meshslice": (
        ["study", "model", "chips", "layer", "product"],
        ["seconds", "compute_s", "launch_s", "sync_s", "transfer_s"],
        meshslice_flops_s,
        shares_follow,
    ),
    "overlap": (
        ["study", "machine", "ranks", "product", "m", "n", "k", "experts"],
        ["seconds"],
        lambda ran: ran.gemm_s,
        efficiencies_follow,
    ),
}


@cache
def committed(paper):
    """Claims and rows of a paper; lowered cases are in a separate sweep."""
    claims, rows = judged(paper)
    if paper == "slicing":
        rows = of_table(rows, rows.table.assign(lowered=rows.table.schedule.notna()))
    return claims, rows


@cache
def verdicts(paper, null, seed):
    """Verdicts on the times of a null model, or of the records without one."""
    (claims, rows), (by, times, flops_s, follow) = committed(paper), GROUPS[paper]
    table = rows.table.copy()
    ran = table[(table["mode"] == "simulated") & table[times[0]].notna()]
    given = ran.groupby(by).indices, ran[times].to_numpy(), flops_s(ran).to_numpy()
    table.loc[ran.index, times] = null_times(null, seed, *given)
    wanted = lambda name: seed < FEW or (null, name) in HOLDS_ALL_THE_SAME
    return check_claims(claims, of_table(rows, follow(table, rows.table)), wanted)


@pytest.fixture(scope="module")
def shares():
    """(null model, claim) -> in which share of its tables the claim holds."""
    found = {}
    for null in NULLS:
        seeds = SEEDS if null == "shuffled" else (0,)
        for paper in ["slicing"] if null == NULLS[-1] else GROUPS:
            every = [each for seed in seeds for each in verdicts(paper, null, seed)
                     if each.claim.source != "arithmetic"]  # fmt: skip
            tried = Counter(each.claim.name for each in every)
            held = Counter(each.claim.name for each in every if each.holds)
            found |= {(null, name): held[name] / tried[name] for name in held}
    return found


def test_a_claim_that_holds_on_meaningless_times_is_listed_with_the_reason(shares):
    unlisted = {each: share for each, share in shares.items() if share >= LISTED}
    assert unlisted.keys() <= HOLDS_ALL_THE_SAME.keys()
    assert all(HOLDS_ALL_THE_SAME.values())


def test_a_claim_that_often_holds_on_meaningless_times_is_not_counted(shares):
    every = [each for paper in GROUPS for each in check_claims(*committed(paper)) if each.holds]
    claims = {each.claim.name: each.claim for each in every if each.claim.source != "arithmetic"}
    often = {name for (null, name), of in shares.items() if null != NULLS[-1] and of >= LISTED}
    assert often and all(claims[name].little for name in often & claims.keys())


def test_a_claim_that_is_listed_does_hold_there(shares):
    assert {each for each in HOLDS_ALL_THE_SAME if shares.get(each, 0) <= MAY_BE} == set()


@pytest.mark.parametrize("paper", GROUPS)
def test_each_null_model_contradicts_the_records(paper):
    """And the verdicts do not change for records that are only split and joined again."""
    base = {each.claim.name: each.ours for each in check_claims(*committed(paper))}
    again = {each.claim.name: each.ours for each in verdicts(paper, "none", 0)}
    assert again == base
    for null in NULLS[: 4 if paper == "slicing" else 3]:
        found = verdicts(paper, null, int(null == "shuffled"))
        assert sum(each.ours != base[each.claim.name] for each in found) > 8, null


def test_a_claim_that_holds_on_every_null_model_fails_on_records_that_contradict_it():
    """T7 states that something is not slower: shuffles do not contradict it."""
    (claim,) = (each for each in committed("overlap")[0] if each.name == "T7")
    rows = committed("overlap")[1]
    table = rows.table.copy()
    at = rows.where(study="split", ranks=16, variant=["2", "4", "8"]).index
    table.loc[at, "seconds"] *= 2
    table.loc[at, "speedup"] /= 2
    found = [check_claims([claim], each) for each in (rows, of_table(rows, table))]
    assert [verdict.holds for (verdict,) in found] == [True, False]


@pytest.mark.parametrize("paper", GROUPS)
def test_without_rows_there_is_no_verdict(paper):
    claims, rows = committed(paper)
    found = check_claims(claims, of_table(rows, rows.table[:0]))
    assert {each.claim.name for each in found if each.holds is not None} <= {"T7a", "M21"}


@pytest.mark.parametrize("group", ["epyc-throttled", "epyc-rma"])
def test_the_order_of_this_machines_times_is_not_that_of_a_null_model(group):
    """S1: the claim depends on the model, not on the measured times."""
    claims, rows = judged("ledger")
    order = replace(next(claim for claim in claims if claim.name == "S1"), query=(group,))
    pairs = rows.where(group=group).reset_index(drop=True)
    shapes = pairs.what.str.partition(" ")[0]
    flops = shapes.map(lambda shape: 2.0 * prod(map(int, shape.split("x"))))
    given = pairs[["predicted"]].to_numpy(), flops.to_numpy()
    assert [each.holds for each in check_claims([order], rows)] == [True]
    for null in NULLS[:3]:
        found = null_times(null, 1, pairs.groupby(shapes).indices, *given)
        nulls = of_table(rows, pairs.assign(predicted=found[:, 0]))
        assert [each.holds for each in check_claims([order], nulls)] == [False], null

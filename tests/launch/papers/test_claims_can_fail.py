"""A claim that holds on the committed records fails on records that contradict it, and has no
verdict without records."""

import pytest
from judging import judged, of_table

from launch.papers.claims import check_claims

#: Columns that are smaller where a time is longer.
RATES = {"percent_of_peak", "utilization_percent", "speedup"}
_TIMES = {"best_s", "time_s", "seconds"}
#: Layouts without replicas.
ALONE = ["row", "column", "block", "traditional"]

#: Claim, the changed rows, and the factor of their times, or of the given columns.
OTHERWISE = [
    ("P1", {"label": "pvc12", "layer": "mlp1", "preset": "column"}, 2),
    ("P2", {"label": "pvc12", "layer": "mlp1", "a": "column/c2"}, 0.1),
    ("P2a", {"label": "pvc12", "layer": "mlp1", "preset": "column"}, 2),
    ("P3", {"label": "pvc12", "layer": "mlp1", "preset": "block", "m": 8192}, 2),
    ("P6", {"label": "h100x8", "layer": "mlp1", "preset": "column"}, 2),
    ("P8", {"label": "pvc12", "layer": "mlp2", "a": ALONE}, 0.01),
    ("P12b", {"label": "h100x8", "algorithm": "universal"}, 1.2),
    ("F3", {"study": "flux13", "method": "chunks", "m": 1024}, {"efficiency_percent": -1}),
    ("F5", {"study": "flux8", "variant": "naive"}, 0.5),
    ("F15", {"study": "flux16-prefill", "method": "flux", "machine": "h800"}, 2),
    ("T1", {"study": "td11", "method": "td"}, 1.7),
    ("T3", {"study": "td13", "method": "td", "m": 32768}, 2),
    ("T6", {"study": "order", "variant": "in row order"}, 0.1),
    ("T7", {"study": "split", "ranks": 16, "variant": ["2", "4", "8"]}, 2),
    ("T14", {"study": "td13", "method": "flux"}, 1.1),
    ("T15", {"study": "td14", "method": "flux"}, 1.1),
    ("M1", {"study": "weak", "algorithm": "wang", "chips": 16}, 0.1),
    ("M3", {"study": "weak", "algorithm": "meshslice", "chips": 16}, 0.5),
    ("M5", {"study": "weak", "algorithm": "collective", "chips": 256}, 0.5),
    ("M7", {"study": "weak", "algorithm": "wang"}, {"launch_s": 0}),
    ("M14", {"study": "meshes", "mesh": "16x16"}, 0.1),
    ("M15", {"study": "slices", "slices": "1-1-1-1"}, 0.1),
    ("M20", {"study": "slice4x4", "algorithm": "collective"}, 2),
]


@pytest.fixture(scope="module")
def every():
    """Claim -> its paper's claims and rows."""
    papers = map(judged, ("slicing", "meshslice", "overlap"))
    return {claim.name: (claims, rows) for claims, rows in papers for claim in claims}


def holds(claims, rows):
    return {verdict.claim.name: verdict.holds for verdict in check_claims(claims, rows)}


@pytest.mark.parametrize("claim, where, change", OTHERWISE, ids=[each[0] for each in OTHERWISE])
def test_a_claim_fails_on_records_that_contradict_it(every, claim, where, change):
    claims, rows = every[claim]
    table = rows.table.copy()
    at = rows.where(mode="simulated", **where).index
    if not isinstance(change, dict):
        change = dict.fromkeys(_TIMES, change) | dict.fromkeys(RATES, 1 / change)
    for column in change.keys() & {*table}:
        table.loc[at, column] *= change[column]
    claims = [each for each in claims if each.name == claim]
    assert holds(claims, rows) == {claim: True}
    assert holds(claims, of_table(rows, table)) == {claim: False}


def test_every_claim_that_holds_on_simulated_records_is_tried(every):
    claims = [each for paper in ("P1", "F1", "M1") for each in every[paper][0]]
    assert {each.name for each in claims if not each.see} - {"T7a", "M21"} == {
        claim for claim, *_ in OTHERWISE
    }


@pytest.mark.parametrize("claim", ["P1", "F1", "M1"])
def test_without_rows_there_is_no_verdict(every, claim):
    claims, rows = every[claim]
    found = holds(claims, of_table(rows, rows.table[:0]))
    assert {name for name, held in found.items() if held is not None} <= {"T7a", "M21"}

"""Predictions beyond the calibration of their machine are marked in the record, the tables and the
advice."""

from dataclasses import replace
from pathlib import Path

import pytest

from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine, write_model
from drbench.launch.models.predict import predict

HERE = Path(__file__).parents[3] / "results/measured/spr-2core/model/rma/here.toml"
#: A calibration as written by drbench calibrate.
SEEN = {
    "ranks": 2,
    "threads": 1,
    "date": "2026-01-01",
    "processor": "an abacus",
    "dtypes": ["float32"],
    "m": [8, 512],
    "n": [8, 512],
    "k": [8, 512],
    "bytes": [1 << 14, 1 << 20],
    "shards": [1 << 13, 1 << 19],
}
INSIDE = Case(512, 512, 512, "row", "row", "row", transport="rma", options={"stationary": "C"})


def machine_of(**changes):
    found = find_machine(str(HERE))
    return found.with_value("calibrated", SEEN | changes)


@pytest.mark.parametrize(
    "known, expected",
    [
        ({}, None),
        ({"m": [8, 128]}, "GEMMs with m of 256 (8 to 128)"),
        ({"n": [600, 700]}, "GEMMs with n of 512 (600 to 700)"),
        ({"k": [8, 128]}, "GEMMs with k of 256 (8 to 128)"),
        ({"bytes": [16384, 32768]}, "transfers of 512 KiB (16 KiB to 32 KiB)"),
        ({"ranks": 1}, "2 ranks (calibrated on 1)"),
        ({"node": 1, "nodes": 1}, "2 nodes (1)"),
        ({"dtypes": ["float64"]}, "float32 (float64)"),
    ],
)
def test_calibrated_values_are_not_beyond_and_each_limit_is_reported(known, expected):
    """Each rank multiplies 256 rows of A with rows of B, fetched in blocks of 256 x 512."""
    assert predict(INSIDE, machine_of(**known), 2).beyond == expected


def test_threads_are_compared_where_they_are_given_and_nothing_without_a_calibration():
    for threads, expected in ((1, None), (2, "2 threads per rank (1)")):
        assert predict(replace(INSIDE, threads=threads), machine_of(), 2).beyond == expected
    assert predict(INSIDE, replace(machine_of(), calibrated={}), 2).beyond is None


def test_without_transfers_none_are_needed_and_collectives_are_described_by_their_shards():
    narrow = machine_of(bytes=[1, 2], shards=[1, 2])
    here = replace(INSIDE, a="row", b="row/c2")
    assert predict(here, narrow, 2).beyond is None
    assert predict(replace(INSIDE, transport="direct"), narrow, 2).beyond is None  # views
    gathered = Case(512, 512, 512, algorithm="summa", transport="rma")
    assert predict(gathered, machine_of(), 2).beyond is None
    found = predict(Case(64, 512, 512, algorithm="collective"), narrow, 2).beyond
    assert found.startswith("collectives on shards of ") and found.endswith("(1 B to 2 B)")


def test_gemms_of_fragmented_operands_count_as_gemms_of_the_fragments():
    """On cores a GEMM of fragmented operands is one call of BLAS for each fragment."""
    case = Case(512, 512, 512, algorithm="meshslice", options={"slices": 4, "block": 8})
    described = predict(case, machine_of(k=[100, 512]), 2).beyond
    assert "GEMMs with k of" in described


def test_tables_and_json_report_it(run_cli, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(HERE.read_text())
    write_model(path, find_machine(str(HERE)).sources | {"calibrated": SEEN | {"m": [8, 16]}})
    words = [*"-m 512 -n 512 -k 512 -p 2 --preset row --machine".split(), path]
    shown = " ".join(run_cli("simulate", *words).stdout.split())
    assert "beyond the calibration: " in shown and "(8 to 16)" in shown
    few = "--only universal --replication none --top 2".split()
    found = run_cli("tune", *words, *few, "--json").json()
    assert "(8 to 16)" in found["ranking"][0]["record"]["beyond"]
    shown = run_cli("tune", *words, *few, "-v").stdout
    assert "outside the calibration of" in shown and "(8 to 16)" in shown


def test_a_measured_gpu_lists_the_gemms_it_was_measured_on():
    machine = find_machine("h100x8measured")
    big = Case(16384, 16384, 65536, "column", "column", "column", options={"chunk": "none"})
    assert "k of 65536 (128 to 8192)" in predict(replace(big, options={}), machine, 1).beyond
    assert predict(Case(8192, 8192, 8192, "row", "row", "row"), machine, 1).beyond is None
    assert "float16 (float32" in predict(Case(512, 512, 512, dtype="float16"), machine, 1).beyond


def test_in_place_is_refused_where_a_rank_is_on_another_node():
    machine, case = find_machine("lumic"), replace(INSIDE, transport="direct")
    assert predict(case, machine, 8).status == "ok"
    found = predict(case, machine, 16)
    assert (found.status, "at most 8 ranks" in found.reason) == ("unsupported", True)

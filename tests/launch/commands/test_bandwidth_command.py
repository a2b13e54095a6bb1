"""``drbench bandwidth``: the requested bytes are moved and verified, on every transport."""

import sys

import pytest
from starting import ROOT

from launch.ranks.transfers import PROGRAMS, Rows, trace_of
from plots.select.bandwidth_rows import COPY, DIVIDED, OPERATIONS, ROWS

pytestmark = pytest.mark.timeout(120)

SMALL = ["--sizes", "64,4KiB", "--json"]


def test_every_operation_has_a_program_and_a_factor():
    assert {*OPERATIONS, COPY} == set(PROGRAMS) and set(DIVIDED) < set(OPERATIONS)


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_program_moves_its_bytes_once_for_each_measured_time(name, ranks):
    """Elements that all ranks count, compared with the definition of the operation."""
    columns, times = 30, 3
    moved = [
        sum(elements for step in trace.steps for _, elements in step.moved(trace.rank))
        for trace in (trace_of(name, Rows.of(columns, ranks, r), times) for r in range(ranks))
    ]
    part = columns // ranks
    wanted = {
        "broadcast": [0] + (ranks - 1) * [columns],  # what a rank receives
        "reduce": [0] + (ranks - 1) * [columns],  # what it sends
        "allgather": ranks * [(ranks - 1) * part],
        "reducescatter": ranks * [(ranks - 1) * part],
    }.get(name, ranks * [columns])
    assert moved == [times * each for each in wanted]


def by_operation(rows):
    return {(row["operation"], row["nbytes"]): row for row in rows}


@pytest.mark.mpi
@pytest.mark.parametrize(
    "words, env, transport",
    [
        (["-p", 2], {}, "direct"),
        ("-p 3 --dtype float64 --transport rma".split(), {}, "rma"),
        (["-p", 4], {"MPIR_CVAR_NUM_CLIQUES": "2"}, "mixed"),
        (["-p", 2, "--transport", "throttled:0.5,100"], {}, "throttled:0.5,100"),
        (["-p", 2, "--backend", "cupy"], {}, "direct"),
    ],
)
def test_every_type_of_transfer_arrives_on_every_transport(
    drbench, mpich, fault, fake_gpus, words, env, transport
):
    env = fake_gpus(2) if "cupy" in words else fault("few transfers") | env
    rows = drbench("bandwidth", *words, *SMALL, env=env, timeout=90).json()
    found, ranks = by_operation(rows), int(words[1])
    assert len(found) == len(rows) == 2 * (len(OPERATIONS) + 1)
    item = 8 if "float64" in words else 4
    for row in rows:
        assert row["transport"] == transport and row["ranks"] == ranks and not row["reason"]
        assert row["samples"] >= 7 and 0 < row["median_low_s"] <= row["median_s"]
        assert row["median_s"] <= row["median_high_s"]
        factor = (ranks - 1) / ranks if row["operation"] in DIVIDED else 1
        assert row["algorithm_gbps"] == pytest.approx(row["nbytes"] / row["median_s"] / 1e9)
        assert row["bus_gbps"] == pytest.approx(factor * row["algorithm_gbps"])
        if row["operation"] in DIVIDED:  # sizes that can be divided evenly
            assert row["nbytes"] % (ranks * item) == 0 and 4096 - row["nbytes"] % 4096 >= 0
        else:
            assert row["nbytes"] in (64, 4096)
    if transport.startswith("throttled"):  # 4096 bytes at 0.5 GB/s, or 100 us after each
        assert found["shift", 4096]["median_s"] >= 100e-6
        assert found["get", 4096]["median_s"] >= 4096 / 0.5e9


@pytest.mark.mpi
def test_rows_are_added_to_a_file_and_printed_and_drawn_from_it(drbench, run_cli, fault, tmp_path):
    words = "bandwidth -p 2 --sizes 4KiB --only get,reducescatter".split()
    few = fault("few transfers")
    first = drbench(*words, "--csv", "b.csv", env=few, timeout=60)
    assert (first.returncode, first.stderr) == (0, "")
    for text in (
        "get",
        "reducescatter",
        "copy",
        "4 KiB",
        "bus GB/s",
        "every transfer was",
    ):
        assert text in first.stdout
    few["PYTHONPROFILEIMPORTTIME"] = "1"  # standard error names what ranks load
    rma = drbench(*words, "--csv", "b.csv", "--transport", "rma", env=few, timeout=60)
    assert rma.returncode == 0 and "launch.ranks.bandwidth" in rma.stderr
    assert "pandas" not in rma.stderr and "matplotlib" not in rma.stderr
    rows = ROWS.read([tmp_path / "b.csv"])
    assert [(row.transport, row.operation) for row in rows] == [
        (transport, name)
        for transport in ("direct", "rma")
        for name in ("get", "reducescatter", "copy")
    ]
    drawn = run_cli("plot", "bandwidth", tmp_path / "b.csv", "-o", tmp_path / "b.png")
    assert drawn.returncode == 0 and (tmp_path / "b.png").stat().st_size > 10_000


@pytest.mark.mpi
def test_a_lost_transfer_is_found(process, mpiexec):
    """One element of one rank wrong, lost or doubled, in each type of transfer."""
    program = ROOT / "tests" / "mpi" / "programs" / "bandwidth.py"
    words = [mpiexec, "-n", 2, sys.executable, "-m", "mpi4py", program]
    path = f"{ROOT}:{ROOT / 'tests' / 'shared'}:{program.parent}"
    environ = {"PYTHONPATH": path, "DRBENCH_TEST_SITUATION": "direct"}
    found = process(*words, env=environ, timeout=90).json()
    assert found["right"] == {}
    for way in ("element", "old"):
        assert set(found[way]) == {*OPERATIONS, COPY}, way
        assert all(text == "CaseFailed" for text in found[way].values())

"""``drbench bandwidth``: the requested bytes are moved and verified, on every transport."""

import sys
from types import SimpleNamespace

import pytest
from starting import ROOT

from drbench.launch.ranks.transfers import PROGRAMS, LocalRows, trace_of
from drbench.plots.select.bandwidth_rows import COPY, DIVIDED, OPERATIONS, ROWS

pytestmark = pytest.mark.timeout(120)

SIZES = ["--sizes", "64,4KiB"]


def test_every_operation_has_a_program_and_a_factor():
    assert {*OPERATIONS, COPY} == set(PROGRAMS) and set(DIVIDED) < set(OPERATIONS)


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_program_moves_its_bytes_once_for_each_measured_time(name, ranks):
    """Elements that all ranks count, compared with the definition of the operation."""
    columns, times = 30, 3
    moved = [
        sum(elements for step in trace.steps for _, elements in step.moved(trace.rank))
        for trace in (trace_of(name, LocalRows.of(columns, ranks, r), times) for r in range(ranks))
    ]
    part = columns // ranks
    wanted = {
        "broadcast": [0] + (ranks - 1) * [columns],  # what a rank receives
        "reduce": [0] + (ranks - 1) * [columns],  # what it sends
        "allgather": ranks * [(ranks - 1) * part],
        "reducescatter": ranks * [(ranks - 1) * part],
    }.get(name, ranks * [columns])
    assert moved == [times * each for each in wanted]


def check(rows, ranks, item=4):
    """Assert that the rows are of all operations and both sizes, with times that make sense."""
    assert len(rows) == len({(row.operation, row.nbytes) for row in rows})
    assert len(rows) == 2 * (len(OPERATIONS) + 1)
    for row in rows:
        assert row.ranks == ranks and not row.reason and row.samples >= 7
        assert row.transfers == 3  # the most, since messages are small
        assert 0 < row.median_low_s <= row.median_s <= row.median_high_s
        factor = (ranks - 1) / ranks if row.operation in DIVIDED else 1
        assert row.algorithm_gbps == pytest.approx(row.nbytes / row.median_s / 1e9, rel=1e-4)
        assert row.bus_gbps == pytest.approx(factor * row.algorithm_gbps, rel=1e-4)
        if row.operation in DIVIDED:  # sizes that can be divided evenly
            assert row.nbytes % (ranks * item) == 0 and row.nbytes <= 4096
        else:
            assert row.nbytes in (64, 4096)


@pytest.mark.mpi
@pytest.mark.parametrize(
    "words, env, transport",
    [
        (["-p", 3], {"MPIR_CVAR_NUM_CLIQUES": "2"}, "mixed"),
        (["-p", 2, "--transport", "throttled:0.5,100"], {}, "throttled:0.5,100"),
    ],
)
def test_every_type_of_transfer_arrives_on_every_transport(
    drbench, mpich, fault, words, env, transport
):
    env = fault("few transfers") | env
    found = drbench("bandwidth", *words, *SIZES, "--json", env=env, timeout=90).json()
    rows = [SimpleNamespace(**row) for row in found]
    assert {row.transport for row in rows} == {transport}
    check(rows, int(words[1]))
    if transport.startswith("throttled"):  # 4096 bytes at 0.5 GB/s, or 100 us after each
        times = {row.operation: row.median_s for row in rows if row.nbytes == 4096}
        assert times["shift"] >= 100e-6 and times["get"] >= 4096 / 0.5e9


@pytest.mark.mpi
def test_rows_are_added_to_a_file_and_printed_and_drawn_from_it(drbench, run_cli, fault, tmp_path):
    few, path = fault("few transfers"), tmp_path / "b.csv"
    first = drbench("bandwidth", "-p", 2, *SIZES, "--csv", path, env=few, timeout=60)
    assert (first.returncode, first.stderr) == (0, "")
    assert all(text in first.stdout for text in (*OPERATIONS, "4 KiB", "bus GB/s"))
    check(ROWS.read([path]), 2)
    few["PYTHONPROFILEIMPORTTIME"] = "1"  # standard error names what ranks load
    words = "bandwidth -p 2 --dtype float64 --transport rma".split()
    rma = drbench(*words, *SIZES, "--csv", path, env=few, timeout=60)
    assert rma.returncode == 0 and "drbench.launch.ranks.bandwidth" in rma.stderr
    assert "pandas" not in rma.stderr and "matplotlib" not in rma.stderr
    rows = ROWS.read([path])
    direct, added = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    assert {row.transport for row in direct} == {"direct"}
    assert {row.transport for row in added} == {"rma"}
    check(added, 2, 8)
    drawn = run_cli("plot", "bandwidth", path, "--save", tmp_path / "b.png")
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

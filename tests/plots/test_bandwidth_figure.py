"""``drbench plot bandwidth``: bandwidths by nccl-tests' rules, and a figure of measured ones."""

from fractions import Fraction

import pytest

from drbench.plots.figures.bandwidth import charts
from drbench.plots.registry import find
from drbench.plots.select.bandwidth_rows import COPY, OPERATIONS, ROWS, bus_bandwidth, row_of
from drbench.plots.select.cases import Options, SelectionError

ABOUT = {
    "label": "here",
    "transport": "direct",
    "backend": "numpy",
    "dtype": "float32",
    "ranks": 4,
    "nodes": 1,
    "mpi": "MPICH 5",
}


def measured(operation, nbytes, microseconds=(3, 2, 4, 3, 5, 3, 9), noisy=False):
    samples = [each * 1e-6 for each in microseconds]
    row = {"operation": operation, "nbytes": nbytes, "times": 2, "samples_s": samples}
    row |= {"interval": (min(samples), max(samples)), "noisy": noisy, "core_share": 0.5}
    return row_of(row, **ABOUT)


def everything(sizes=(4096, 65536, 1 << 20)):
    return [measured(name, nbytes) for name in (*OPERATIONS, COPY) for nbytes in sizes]


def crossing(operation, ranks):
    """The part of an operation's size on the busiest rank's link, by counting shards that pass from
    rank to rank round a ring; a link works in both directions at once."""
    if operation in ("get", "put", "accumulate", "shift"):
        return Fraction(1)  # the whole, to or from one neighbour
    if operation in ("broadcast", "reduce"):
        return Fraction(1)  # every packet passes each link of the chain once
    has = {rank: {rank} for rank in range(ranks)}  # of an allgather; a reduce-scatter backwards
    sent = dict.fromkeys(range(ranks), 0)
    for step in range(ranks - 1):
        for rank in range(ranks):
            shard = (rank - step) % ranks
            assert shard in has[rank]
            has[(rank + 1) % ranks].add(shard)
            sent[rank] += 1
    assert all(len(each) == ranks for each in has.values())
    return Fraction(max(sent.values()), ranks)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_bus_bandwidth_is_what_crosses_the_busiest_link_of_a_ring(operation, ranks):
    algorithm, bus = bus_bandwidth(operation, 3 * 10**9, 1.5, ranks)
    assert algorithm == 2.0
    assert bus == pytest.approx(float(2 * crossing(operation, ranks)))


def test_rows_read_as_they_were_written_and_other_files_are_refused(tmp_path):
    row = {"operation": "put", "nbytes": 64, "times": 1, "reason": "no such thing, here"}
    rows = [*everything(), row_of(row, **ABOUT)]
    ROWS.write(tmp_path / "b.csv", rows)
    assert ROWS.read([tmp_path]) == [
        row._replace(**{name: value and float(f"{value:.6g}") for name, value in floats(row)})
        for row in rows
    ]
    (tmp_path / "b.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match="b.csv holds no bandwidths: its columns are a, b. Use"):
        ROWS.read([tmp_path])


def floats(row):
    return [(name, value) for name, value in row._asdict().items() if name.endswith(("_s", "gbps"))]


def test_every_type_has_a_line_in_the_panel_of_its_transport():
    rows = everything() + [row._replace(transport="rma") for row in everything((4096, 1 << 24))]
    direct, rma = find("bandwidth").make(rows, Options()).picture.axes
    for axes, sizes in (direct, [4096, 65536, 1 << 20]), (rma, [4096, 1 << 24]):
        lines = [line for line in axes.lines if list(line.get_xdata()) == sizes]
        assert len(lines) == len(OPERATIONS) + 1
        expected = pytest.approx([each / 3e-6 / 1e9 for each in sizes])
        assert any(list(line.get_ydata()) == expected for line in lines)


def test_of_several_rows_of_one_type_the_latest_is_drawn_and_failures_are_named():
    failed = {"operation": "put", "nbytes": 64, "times": 1, "reason": "out of reach"}
    rows = [measured("get", 64, [8] * 7), measured("get", 64, [2] * 7), row_of(failed, **ABOUT)]
    made = find("bandwidth").make(rows, Options())
    (line,) = made.picture.axes[0].lines
    assert line.get_ydata()[0] == pytest.approx(64 / 2e-6 / 1e9)
    assert made.notes == ["not drawn: put: out of reach"]
    with pytest.raises(SelectionError, match="drbench bandwidth --csv"):
        find("bandwidth").make(rows[2:], Options())


def test_a_noisy_bandwidth_is_hollow_and_counted_and_an_older_file_is_read(tmp_path):
    rows = [measured("get", size, noisy=size == 4096) for size in (4096, 65536)]
    (chart,), notes = charts(rows, Options())
    assert [list(marks.hollow) for marks in chart.marks] == [[True, False]]
    assert "hollow: 1 noisy case, never ranked" in notes
    path = tmp_path / "b.csv"
    ROWS.write(path, rows)
    assert [row.noisy for row in ROWS.read([path])] == [True, False]
    lines = path.read_text().splitlines()
    path.write_text("".join(line.rsplit(",", 2)[0] + "\n" for line in lines))
    assert [(row.noisy, row.core_share) for row in ROWS.read([path])] == [(None, None)] * 2
    path.write_text(path.read_text().replace(",mpi", ",api"))
    with pytest.raises(ValueError, match=r"b\.csv holds no bandwidths"):
        ROWS.read([path])

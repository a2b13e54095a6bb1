"""Constants of machine models from the output of other tools.

Rows of the excerpts are those of github.com/open-mpi/ompi/pull/4919 (osu_put_bw),
github.com/open-mpi/ompi/issues/3216 (osu_bibw), github.com/NVIDIA/nccl-tests/issues/214
(sendrecv_perf), /44 (the columns of 2020) and /37 (wrong results of 2020).
"""

import json

import pytest
from pytest import approx

from drbench.errors import UsageError
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.studies.other_tools import fit_tables, import_constants, read_rows
from drbench.model.costs import group_parts
from drbench.model.machine import Machine
from drbench.model.machine_file import read_section
from drbench.plots.select.bandwidth_rows import ROWS, row_of
from drbench.program.group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift

PUT = """\
# OSU MPI_Put Bandwidth Test v5.3
# Window creation: MPI_Win_allocate
# Synchronization: MPI_Win_flush
# Size      Bandwidth (MB/s)
1                       1.78
1024                 1552.63
1048576              8401.46
"""
BOTH_WAYS = """\
srun -n 2 -N 2 ./osu_bibw
[r01n01:07409] [rank=0] openib: using port mlx5_0:1
# OSU MPI Bi-Directional Bandwidth Test v5.1
# Size      Bandwidth (MB/s)
1                       2.60
4194304             24700.13
"""
SENDRECV = """\
# nThread 1 nGpus 1 minBytes 256 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid 1478709 on      gpu23 device  0 [0x31] NVIDIA A40
#  Rank  1 Group  0 Pid 1171742 on      gpu24 device  0 [0x31] NVIDIA A40
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
         256            64     float     sum      -1    34.24    0.01    0.01      0    33.65    0.01    0.01    N/A
        8192          2048     float     sum      -1    31.76    0.26    0.26      0    31.59    0.26    0.26    N/A
"""  # noqa: E501, W291
#: Of version 2.13.0, which prints a column without its word.
WITHOUT_A_WORD = (
    SENDRECV.replace("sum      -1    34.24", "-1    34.24")
    .replace("sum      -1    31.76", "-1    31.76")
    .replace("         256 ", "     1048576 ")
)
OLD = """\
./all_gather_perf -b 8 -e 128M -f 2 -g 2
# Using devices
#   Rank  0 Pid   3136 on w1cache device  0 [0x01] GeForce RTX 2080 Ti
#   Rank  1 Pid   3136 on w1cache device  1 [0x02] GeForce RTX 2080 Ti
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
       32768          4096   float    13.39    1.22    1.22  0e+00    11.85    1.38    1.38  0e+00
   134217728      16777216   float   3298.6   20.34   20.34  0e+00   3070.3   21.86   21.86  0e+00
# Out of bounds values : 0 OK
"""
TIMES = "# OSU MPI_Get latency Test v7.4\n# Size          Latency (us)\n0 1.50\n8 2.00\n1024 3.00\n"
GATHER = "# OSU MPI-CUDA Allgather Latency Test v7.4\n# Size  Avg Latency(us)\n8 10.0\n4096 20.0\n"


def ranks_of(count):
    return "".join(
        f"#  Rank {at:2} Group  0 Pid 7 on host device 0 NVIDIA\n" for at in range(count)
    )


def nccl(test, count, rows, wrong="0"):
    """The output of nccl-tests today: ``rows`` are (bytes, seconds)."""
    text = f"# nccl-tests version 2.18.5\n# Collective test starting: {test}\n# Using devices\n"
    head = "time algbw busbw #wrong"
    text += f"{ranks_of(count)}#\n#       size  count type redop root {head} {head}\n"
    for size, seconds in rows:
        time = f"{seconds * 1e6:.4f} 1.0 1.0"
        text += f"  {size}  {size // 4} float sum -1 {time} {wrong} 9{time} N/A\n"
    return f"{text}# Out of bounds values : 0 OK\n# Collective test concluded: {test}\n"


@pytest.fixture
def written(tmp_path):
    """``written(text, name)``: the path of a file with a text."""

    def write(text, name="out.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


@pytest.mark.parametrize(
    "text, name, rows",
    [
        (PUT, "a", [("osu_put_bw", 2, 1, 1 / 1.78e6), ("osu_put_bw", 2, 2**20, 2**20 / 8401.46e6)]),
        (
            BOTH_WAYS,
            "a",
            [("osu_bibw", 2, 1, 2 / 2.6e6), ("osu_bibw", 2, 2**22, 2**23 / 24700.13e6)],
        ),
        (SENDRECV, "sendrecv_perf.log", [("sendrecv_perf", 2, 256, 34.24e-6)]),
        (SENDRECV, "sendrecv_perf.log", [("sendrecv_perf", 2, 8192, 31.76e-6)]),
        (
            OLD,
            "a",
            [("all_gather_perf", 2, 2**15, 13.39e-6), ("all_gather_perf", 2, 2**27, 3298.6e-6)],
        ),
        (TIMES, "a", [("osu_get_latency", 2, 8, 2e-6), ("osu_get_latency", 2, 1024, 3e-6)]),
        (TIMES.replace("Get latency", "Put Latency"), "a", [("osu_put_latency", 2, 8, 2e-6)]),
        (WITHOUT_A_WORD, "all_gather_perf.log", [("all_gather_perf", 2, 2**20, 34.24e-6)]),
        (GATHER, "a", [("osu_allgather", 16, 8, 1e-5), ("osu_allgather", 16, 4096, 2e-5)]),
    ],
)
def test_rows_have_the_seconds_of_one_operation_of_the_ranks_that_ran(written, text, name, rows):
    path = written(text, name)
    found = [*read_rows(path, 16)]
    for row in rows:
        assert any(each[:2] == row[:2] and each[2:] == approx(row[2:]) for each in found), found
    assert all(size for _, _, size, _ in found)
    tagged = "".join(f"[1,0]<stdout>: {line}\n" for line in text.splitlines())
    assert [*read_rows(written(tagged, name), 16)] == found
    labelled = "".join(f" 0: {line}\n" for line in text.splitlines())  # srun --label
    assert [*read_rows(written(labelled, name), 16)] == found


def test_several_tests_of_one_file_are_told_apart(written):
    text = (
        TIMES + PUT + nccl("all_gather_perf", 4, [(64, 1e-5)]) + nccl("reduce_perf", 8, [(8, 1e-5)])
    )
    found = {(test, count) for test, count, *_ in read_rows(written(text))}
    assert found == {
        *(("osu_get_latency", 2), ("osu_put_bw", 2), ("all_gather_perf", 4), ("reduce_perf", 8))
    }


def of_bandwidth():
    known = {"label": "x", "transport": "rma", "backend": "numpy", "dtype": "float32", "mpi": "m"}
    for operation, nbytes, seconds, noisy in (
        ("get", 4096, 1e-5, False),
        ("get", 65536, 2e-5, False),
        ("get", 1 << 20, 9.0, True),
        ("copy", 4096, 1e-6, False),
        ("shift", 4096, 3e-5, False),
    ):
        measured = {"operation": operation, "nbytes": nbytes, "times": 4, "samples_s": [seconds]}
        yield row_of(measured | {"noisy": noisy}, ranks=4, nodes=2, **known)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_rows_of_drbench_bandwidth_are_used_unless_they_are_noisy_or_copies(written, form):
    path = written("", f"rows.{form}")
    if form == "csv":
        ROWS.write(path, of_bandwidth())
    else:
        path = written(json.dumps([row._asdict() for row in of_bandwidth()]), "rows.json")
    expected = [("get", 4, 4096, 1e-5), ("get", 4, 65536, 2e-5), ("shift", 4, 4096, 3e-5)]
    assert [*read_rows(path)] == expected


@pytest.mark.parametrize(
    "text, name, words",
    [
        ("", "a", "no rows"),
        ("# OSU MPI_Put Bandwidth Test v5.3\n# Size Bandwidth (MB/s)\n", "a", "no rows"),
        ("hello\n1 2.0 3.0\n", "a", "no rows"),
        (b"\xff\xfe1 2", "a", "utf-8"),
        ("[1, 2]", "a", "no rows"),
        ("[{]", "a", "Give output"),
        ('[{"label": 1}]', "a", "Give output"),
        ("label,size\n1,2\n", "a", "columns"),
        (GATHER.replace("Allgather", "Allreduce"), "a", "osu_allreduce gives no constant"),
        (GATHER, "a", "-p"),
        (nccl("all_gather_perf", 0, [(8, 1.0)]), "a", "-p"),
        (nccl("all_gather_perf", 1, [(8, 1.0)]), "a", "-p"),
        (nccl("scatter_perf", 4, [(8, 1.0)]), "a", "scatter_perf gives no constant"),
        (SENDRECV, "a", "no rows"),
        (nccl("all_gather_perf", 4, [(8, 1.0)], wrong="3"), "a", "wrong"),
        (OLD.replace("0 OK", "2 FAILED"), "a", "wrong"),
        (OLD.replace("13.39 ", "\n"), "a", "out of place"),
        (GATHER.replace("10.0", "10.0  Pass").replace("20.0", "20.0  Fail"), "a", "wrong"),
        (GATHER + "DATA VALIDATION ERROR: osu_allgather exited\n", "a", "wrong"),
        (OLD + OLD.replace("./all_gather_perf", "#"), "a", "several runs"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line_with_a_way_out(
    written, tmp_path, text, name, words
):
    path, save = written(text, name), tmp_path / "new.toml"
    with pytest.raises(UsageError, match="--from") as refused:
        import_constants([path], "h100x8measured", None, "x", str(save), None)
    message = str(refused.value)
    assert words in message and "\n" not in message and len(message) < 700
    assert not save.exists()


SIZES = [1 << at for at in range(10, 31, 4)]
#: What a link of a ring carries of an operation of P ranks, by hand: each forwards P - 1 shards.
CARRIED = {
    "all_gather_perf": (AllGather, lambda size, count: (count - 1) * size / count),
    "reduce_scatter_perf": (ReduceScatter, lambda size, count: (count - 1) * size / count),
    "broadcast_perf": (Broadcast, lambda size, count: (count + 8 - 2) * size / 8),
    "reduce_perf": (Reduce, lambda size, count: (count + 8 - 2) * size / 8),
    "sendrecv_perf": (Shift, lambda size, count: size),
}


def of_fit(path, name, link=None, ranks=None):
    section = read_section(find_file(name))
    rows = [(*row, "f") for row in read_rows(path, ranks)]
    return fit_tables(rows, section, link or next(iter(section["links"])))


def find_file(name):
    from drbench.launch.cases.machine_models import file_of

    return file_of(name)


@pytest.mark.parametrize("test", CARRIED)
def test_launch_and_bandwidth_of_a_ring_are_found_again(written, test):
    step, carried = CARRIED[test]
    rows = [(size, 2e-5 + carried(size, 8) / 3e11) for size in SIZES]
    found = of_fit(written(nccl(test, 8, rows)), "h100x8measured")["collectives"][step.operation]
    assert found["bandwidth_bytes_per_s"][0] == approx(3e11, rel=1e-3)
    assert found["launch_s"][0] == approx(2e-5, rel=1e-3) and found["sync_s"][0] == 0


@pytest.mark.parametrize("test", CARRIED)
@pytest.mark.parametrize(
    "name, count",
    [("a100nvlink", 8), ("a100nvlink", 16), ("mi300x", 8), ("mi300x", 16), ("pvc12", 12)],
)
def test_the_model_takes_the_measured_times(written, tmp_path, name, count, test):
    """Whatever a machine is: pairs with links of their own, several nodes, shared cards."""
    step, _ = CARRIED[test]
    rows = [(size, 1e-5 + size / 4e10) for size in SIZES]
    save = tmp_path / "new.toml"
    import_constants([written(nccl(test, count, rows))], name, None, "x", str(save), None)
    machine = Machine.load(save)
    members = tuple(range(count))
    for size, seconds in rows:
        shard = size / (count if step.kind == "ring" else 1)
        rate = machine.link(0, count - 1).bandwidth_bytes_per_s
        predicted = sum(group_parts(step, machine, count, shard, rate, "row", members))
        assert predicted == approx(seconds, rel=1e-3), size


def test_an_all_reduce_is_two_halves_unless_they_were_measured_themselves(written):
    text = nccl("all_reduce_perf", 8, [(size, 4e-5 + 2 * 7 / 8 * size / 3e11) for size in SIZES])
    found = of_fit(written(text), "h100x8measured")["collectives"]
    for operation in ("allgather", "reducescatter"):
        assert found[operation]["launch_s"][0] == approx(2e-5, rel=1e-3)
        assert found[operation]["bandwidth_bytes_per_s"][0] == approx(3e11, rel=1e-3)
    text += nccl("all_gather_perf", 8, [(size, 1e-5 + 7 / 8 * size / 2e11) for size in SIZES])
    found = of_fit(written(text), "h100x8measured")["collectives"]
    assert found["allgather"]["bandwidth_bytes_per_s"][0] == approx(2e11, rel=1e-3)
    assert found["reducescatter"]["bandwidth_bytes_per_s"][0] == approx(3e11, rel=1e-3)


def test_osu_counts_the_bytes_of_one_rank_in_an_allgather(written):
    rows = "".join(f"{size} {1e6 * (1e-5 + 15 * size / 1e10):.4f}\n" for size in SIZES)
    text = f"# OSU MPI Allgather Latency Test v7.4\n# Size Avg Latency(us)\n{rows}"
    found = of_fit(written(text), "h100x8measured", ranks=16)["collectives"]["allgather"]
    assert found["bandwidth_bytes_per_s"][0] == approx(1e10, rel=1e-3)


def test_the_rate_of_a_link_is_that_of_transfers_in_flight_and_its_latency_that_of_one(written):
    rows = "".join(f"{size} {size / (1e-7 + size / 2e10) / 1e6:.4f}\n" for size in SIZES)
    text = f"# OSU MPI_Get Bandwidth Test v7.4\n# Size Bandwidth (MB/s)\n{rows}"
    rows = "".join(f"{size} {1e6 * (3e-6 + size / 1e10):.4f}\n" for size in SIZES)
    alone = f"# OSU MPI_Get latency Test v7.4\n# Size Latency (us)\n{rows}"
    link = of_fit(written(text + alone), "dgxh100", "nic")["links"]["nic"]
    assert link["bandwidth_bytes_per_s"][0] == approx(2e10, rel=1e-3)
    assert link["latency_s"][0] == approx(3e-6, rel=1e-3)
    assert (
        "osu_get_bw" in link["bandwidth_bytes_per_s"][1]
        and "1 KiB to 1 GiB" in link["latency_s"][1]
    )
    link = of_fit(written(alone), "dgxh100", "nic")["links"]["nic"]
    assert link["bandwidth_bytes_per_s"][0] == approx(1e10, rel=1e-3)


@pytest.mark.parametrize("name, links", [("h100x8measured", 1), ("mi300x", 7)])
def test_an_all_to_all_uses_all_links_of_a_rank_at_once(written, name, links):
    rows = [(size, 1e-5 + 7 / 8 * size / links / 5e10) for size in SIZES]
    (link,) = of_fit(written(nccl("alltoall_perf", 8, rows)), name)["links"].values()
    assert link["bandwidth_bytes_per_s"][0] == approx(5e10, rel=1e-3)


@pytest.mark.parametrize(
    "text, name, words",
    [
        (nccl("all_gather_perf", 8, [(1 << 20, 1e-3)] * 3), "h100x8measured", "several sizes"),
        (nccl("all_gather_perf", 8, [(8, 1e-3), (1 << 20, 1e-5)]), "h100x8measured", "longer"),
        (nccl("all_gather_perf", 8, [(8, 1e-5), (1 << 20, 1e-3)]), "h100x8", "nccl"),
        (nccl("alltoall_perf", 16, [(8, 1e-5), (1 << 20, 1e-3)]), "mi300x", "one node"),
        (
            "".join(nccl("reduce_perf", count, [(8, 1e-5), (1 << 20, 1e-3)]) for count in (4, 8)),
            "h100x8measured",
            "one number of ranks",
        ),
    ],
)
def test_rows_that_fit_no_constant_are_refused(written, text, name, words):
    with pytest.raises(UsageError, match=words):
        of_fit(written(text), name)


CORES = """\
[launch]
ranks_per_node = 2
[model]
name = "mine"
adds_on_core = true
[model.calibrated]
ranks = 2
[model.compute]
peak_flops = 1e11
[model.transports.direct]
shared = "initiator"
reads_in_place = true
bandwidth_bytes_per_s = inf
[model.collectives.allgather]
launch_s = 1e-6
bandwidth_bytes_per_s = 1e10
"""


def test_a_network_joins_the_nodes_of_calibrated_cores(written, tmp_path, run_cli):
    """As its user would: two files, a machine, a prediction over two nodes; the cores stay."""
    base = written(CORES, "mine.toml")
    files = written(PUT, "put.txt"), written(TIMES + GATHER, "times.txt")
    words = [word for file in files for word in ("--from", file)]
    save = tmp_path / "cluster.toml"
    found = run_cli("calibrate", *words, "-p", "4", "--machine", base, "--save", save)
    text = save.read_text()
    assert found.returncode == 0 and text.strip() in found.stdout and 'base = "mine.toml"' in text
    assert "put.txt" in text and "times.txt" in text
    left = found.stdout.partition("# as in ")[2]
    assert "reducescatter: reduce_scatter_perf osu_reduce_scatter" in left
    assert "latency_s" not in left and "allgather:" not in left
    before, machine = Machine.load(base), Machine.load(save)
    assert machine.compute == before.compute and machine.name == "here"
    seen = machine.for_transport(find_transport("auto"))
    assert [seen.link(0, rank).name for rank in (1, 2)] == ["direct", "network"]
    gather = seen.collective("allgather")
    assert gather.bandwidth_bytes_per_s == 1e10 and gather.launch_s == 1e-6  # in a node
    assert gather.starts((0, 1, 2, 3))[0] == approx(1e-5, rel=0.1) and gather.node == 2
    sizes = "-m 512 -n 512 -k 512 -p 4 --preset row".split()
    record = run_cli("simulate", *sizes, "--machine", save, "--json").json()
    assert record["status"] == "ok" and record["get_bytes"] > 0


def find_transport(text):
    from drbench.transport import parse_transport

    return parse_transport(text)


def test_the_machine_below_is_never_replaced_and_links_must_be_its_own(written, run_cli):
    base, file = written(CORES, "mine.toml"), written(PUT, "put.txt")
    found = run_cli("calibrate", "--from", file, "--machine", base, "--save", base)
    assert found.returncode == 2 and "another file" in found.stderr
    assert open(base).read() == CORES
    words = "--from", file, "--machine", "dgxh100", "--save", f"{base}.new", "--link", "xe"
    found = run_cli("calibrate", *words)
    assert found.returncode == 2 and "nvlink, rail, nic" in found.stderr
    assert find_machine("dgxh100").link(0, 9).name == "nic"

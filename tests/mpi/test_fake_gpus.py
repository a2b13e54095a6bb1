"""``--backend cupy`` from the case to the verified record on ranks without GPUs: real processes,
real IPC of a fake device's memory, real addresses."""

import itertools
import json

import pytest
from cases import case
from signal_runs import EXPERTS, OVERLAP

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]
LAYOUTS = ("row", "column", "block"), ("column", "column", "row"), ("row/c2", "column", "block/c2")


def shape(*layouts, **more):
    """An uneven case."""
    return case(45, 38, 51, *layouts, **more)


@pytest.fixture
def run(mpirun, kernels):
    """``run(ranks, cases, lacks=...)``: the records of cases on fakes of CuPy, and what is left of
    them."""

    def on(ranks, cases, **lacks):
        found = mpirun(ranks, "fake_gpu.py", kernels, cases, json.dumps(lacks))
        assert found["left"] == 0
        return found

    return on


def cases():
    for stationary, layouts in itertools.product("ABC", LAYOUTS):
        plain = shape(*layouts, stationary=stationary, chunk=16)
        yield plain
        more = {"replicate_result": True, "transport": "rma"}
        yield plain | more | {"max_gemms": 2, "accumulate_blocks": 2}
    yield shape(get="view", dtype="float64", fill="uniform", gemm_only=True)
    yield shape("column", "column", "row", dtype="bfloat16:float32", stationary="B")
    yield shape(compute="tf32")
    even = case(48, 40, 56)
    for algorithm in ("summa", "wang", "meshslice", "collective"):
        for dataflow in ("OS", "RS"):
            yield even | {
                "algorithm": algorithm,
                "dataflow": dataflow,
                "mesh": "1x2",
                "gemm_only": True,
            }
    yield even | {"algorithm": "fsdp"}
    for dataflow in ("AG", "RS"):
        experts = {"algorithm": "moe_collective", "dataflow": dataflow, "experts": 5, "topk": 2}
        for more in ({}, {"dtype": "bfloat16:float32", "gemm_only": True}):
            yield even | experts | more


def test_every_way_through_the_gpu_code_is_exact_and_leaves_nothing_behind(run, dealt):
    plain = lambda each: (
        not ({"dtype", "compute"} & each.keys() or "moe" in each.get("algorithm", ""))
    )
    wanted = dealt(filter(plain, cases()), 0, 7) + [each for each in cases() if not plain(each)]
    found = run(2, wanted)
    assert found["anew"] == 0 and sum(found["graphs"]) > 0
    for made, record in zip(wanted, found["records"]):
        assert record["status"] == "ok", (made, record["reason"])
        assert record["error"] == 0 or made.get("fill") == "uniform", made
        where = record["device"], record["ranks_per_device"], record["collectives"]
        assert where == ("NVIDIA Fake", 1, "staged") and record["oversubscribed"] is False
        assert record["peak_device_bytes"] > 0 and record["phase_gemm_s"] is None
    assert {(record["compute"], record["blas_kernel"]) for record in found["records"]} >= {
        ("fp32", "sm_90"),
        ("bf16", "sm_90"),
        ("tf32", "sm_90 tf32"),
    }


def test_gpus_without_peer_access_go_through_the_host_and_a_refused_case_leaves_nothing_behind(run):
    stationary = shape(*LAYOUTS[0], stationary="B", chunk=16)
    refused = [stationary | {"transport": "direct"}, stationary | {"collectives": "gpu-aware"}]
    found = run(2, [*refused, stationary], peers=False)["records"]
    text = [(record["status"], record["error"]) for record in found]
    assert text == [("unsupported", None)] * 2 + [("ok", 0.0)]
    assert found[-1]["transport"] == "rma"
    why = "rank 0 to rank 1: device 0000:00:00.0 has no peer access to 0000:01:00.0; use ranks on"
    assert found[-1]["reason"].startswith(why)
    (record,) = run(2, [stationary])["records"]
    assert (record["transport"], record["reason"]) == ("direct", None)


def test_c_goes_through_the_host_where_additions_between_gpus_are_not_atomic(run):
    (record,) = run(2, [shape(*LAYOUTS[1], stationary="B", chunk=16)], atomics=False)["records"]
    assert (record["status"], record["error"], record["transport"]) == ("ok", 0.0, "rma")
    assert record["accumulate_bytes"] > 0
    assert "rank 0 to rank 1: NVML does not report" in record["reason"]


def test_memory_that_no_rank_can_open_is_named_with_the_way_out(run):
    """As where Slurm shows each rank one GPU: the driver knows the handle, and refuses it."""
    case = shape(*LAYOUTS[0], stationary="B", chunk=16)
    (record,) = run(2, [case], opens=False)["records"]
    assert (record["status"], record["error"], record["transport"]) == ("ok", 0.0, "rma")
    why = record["reason"]
    assert "cannot open memory of 0000:01:00.0: cudaErrorInvalidValue" in why
    assert "--gpus-per-node" in why and "--ipc=host" in why


def test_repeats_are_launched_as_one_graph_where_the_host_has_no_part_in_them(run):
    """From the second of three repeats on, on both ranks."""
    graphs, more = zip(
        (4, {"stationary": "C", "chunk": 16}),
        (4, {"stationary": "C", "chunk": 16, "prefetch": 0, "max_gemms": 2}),
        (4, {"stationary": "C", "schedule": "greedy"}),
        (0, {"stationary": "C", "transport": "rma"}),  # through the host
        (0, {"stationary": "A"}),  # a Fence before others add to zeros
    )
    found = run(2, [shape(*LAYOUTS[0], **each) for each in more])
    assert {(record["status"], record["error"]) for record in found["records"]} == {("ok", 0.0)}
    assert found["graphs"] == [*graphs]


def test_a_rank_without_work_repeats_nothing(run):
    """One row on two ranks: the second has no tile of A and C, and no step to launch as a graph."""
    found = run(2, [case(1, 38, 51, "row", "R", "row", stationary="C")])
    assert [(each["status"], each["error"]) for each in found["records"]] == [("ok", 0.0)]
    assert found["graphs"] == [2]


def overlapping(**more):
    """Every program of fused overlap, experts too; in the first run hosts signal, in the second
    streams."""
    for x, (name, options) in enumerate(OVERLAP + EXPERTS):
        if name not in ("te_chunks", "async_tp") and "moe" not in name:
            options = options | {"tile": (5, 16)[x % 2]}
        if "moe" in name:
            options = options | {"experts": 5, "topk": 2, "routing": "skewed:1"}
            options |= {"transpose": (None, "a")[x % 2]}
        get = ("copy", "view")[x // 2 % 2]
        yield case(67, 48, 56, algorithm=name, get=get, warmup=1, **options) | more


def signalled(found, who):
    """Whether every case was exact, and who signalled."""
    text = [(record["status"], record["error"], record["progress"]) for record in found["records"]]
    assert {*text} == {("ok", 0.0, who)}, [record["reason"] for record in found["records"]]


def test_fused_overlap_is_exact_through_the_gpu_code_where_streams_wait_for_flags(run, dealt):
    wanted = [*overlapping(copy_streams=2)]
    narrow = {"max_gemms": 2, "dtype": "bfloat16:float32"}
    of = ("ag_gemm", "ag_moe", "moe_rs")
    wanted += [each | narrow for each in wanted if each["algorithm"] in of]
    wanted = wanted[:3] + dealt(wanted[3:], 0, 8)
    found = run(3, wanted, devices=3)
    signalled(found, "streams")
    assert {record["copy_streams"] for record in found["records"]} == {2} and found["anew"] == 0
    assert {record["blas_kernel"] for record in found["records"][:3]} == {"sm_90 parts"}


@pytest.mark.parametrize(
    "why", [{"devices": 1}, {"driver": False}, {"peers": False}], ids=lambda x: next(iter(x))
)
def test_hosts_signal_where_streams_cannot_or_must_not_wait(run, dealt, why):
    """Ranks that share a GPU; a driver without stream memory operations; no peer access, where
    values go through the host."""
    wanted = dealt(overlapping(), len(next(iter(why))), 8)
    signalled(run(2, wanted, **why), "streams" if "peers" in why else "hosts")

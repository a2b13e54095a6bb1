"""``--backend cupy`` from the case to the verified record on ranks without GPUs: real processes,
real IPC of a fake device's memory, real addresses."""

import pytest
from signal_runs import EXPERTS, OVERLAP

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]
SHAPE = {"m": 45, "n": 38, "k": 51}


def cases():
    for stationary in "ABC":
        for texts in (
            ("row", "column", "block"),
            ("column", "column", "row"),
            ("row/c2", "column", "block/c2"),
        ):
            named = dict(zip("abc", texts))
            yield {**SHAPE, **named, "options": {"stationary": stationary, "chunk": 16}}
            yield {
                **SHAPE,
                **named,
                "options": {"stationary": stationary, "chunk": 16, "replicate_result": True},
                "transport": "rma",
                "max_gemms": 2,
                "accumulate_blocks": 2,
            }
    yield {**SHAPE, "get": "view", "dtype": "float64", "fill": "uniform", "roof": True}
    yield {
        **SHAPE,
        "dtype": "bfloat16:float32",
        "options": {"stationary": "B"},
        "a": "column",
        "b": "column",
        "c": "row",
    }
    yield {**SHAPE, "compute": "tf32"}
    for algorithm in ("summa", "wang", "meshslice", "collective"):
        for dataflow in ("OS", "RS"):
            yield {
                "m": 48,
                "n": 40,
                "k": 56,
                "algorithm": algorithm,
                "options": {"dataflow": dataflow, "mesh": "1x2"},
                "roof": True,
            }
    yield {"m": 48, "n": 40, "k": 56, "algorithm": "fsdp"}
    for dataflow in ("AG", "RS"):
        for more in ({}, {"dtype": "bfloat16:float32", "roof": True}):
            options = {"dataflow": dataflow, "experts": 5, "topk": 2}
            case = {"algorithm": "moe_collective", "options": options}
            yield {"m": 48, "n": 40, "k": 56} | case | more


def test_every_way_through_the_gpu_code_is_exact_and_leaves_nothing_behind(mpirun, dealt, kernels):
    plain = lambda case: (
        not ({"dtype", "compute"} & case.keys() or "moe" in case.get("algorithm", ""))
    )
    wanted = dealt(filter(plain, cases()), 0, 3) + [case for case in cases() if not plain(case)]
    found = mpirun(2, "fake_gpu.py", kernels, wanted)
    assert [(record["status"], record["reason"]) for record in found["records"]] == [
        ("ok", None)
    ] * len(wanted)
    assert (found["left"], found["anew"]) == (0, 0) and sum(found["graphs"]) > 0
    records = [
        record for case, record in zip(wanted, found["records"]) if case.get("fill") != "uniform"
    ]
    assert {record["error"] for record in records} == {0.0}
    assert {
        (record["device"], record["ranks_per_device"], record["collectives"]) for record in records
    } == {("NVIDIA Fake", 1, "staged")}
    assert {(record["compute"], record["blas_kernel"]) for record in records} >= {
        ("fp32", "sm_90"),
        ("bf16", "sm_90"),
        ("tf32", "sm_90 tf32"),
    }
    assert all(
        record["peak_device_bytes"] > 0 and record["phase_gemm_s"] is None for record in records
    )


def test_gpus_without_peer_access_go_through_the_host_and_a_refused_case_leaves_nothing_behind(
    mpirun, kernels
):
    stationary = {
        **SHAPE,
        "no_peers": True,
        "a": "row",
        "b": "column",
        "c": "block",
        "options": {"stationary": "B", "chunk": 16},
    }
    refused = [{**stationary, "transport": "direct"}, {**stationary, "collectives": "gpu-aware"}]
    found = mpirun(2, "fake_gpu.py", kernels, [*refused, stationary])
    assert [(record["status"], record["error"]) for record in found["records"]] == [
        ("unsupported", None)
    ] * 2 + [("ok", 0.0)]
    assert found["records"][-1]["transport"] == "rma" and found["left"] == 0


def test_c_goes_through_the_host_where_additions_between_gpus_are_not_atomic(mpirun, kernels):
    case = {
        **SHAPE,
        "no_atomics": True,
        "a": "column",
        "b": "column",
        "c": "row",
        "options": {"stationary": "B", "chunk": 16},
    }
    found = mpirun(2, "fake_gpu.py", kernels, [case])
    record = found["records"][0]
    assert (record["status"], record["error"], record["transport"], found["left"]) == (
        "ok",
        0.0,
        "rma",
        0,
    )
    assert record["accumulate_bytes"] > 0


def test_repeats_are_launched_as_one_graph_where_the_host_has_no_part_in_them(mpirun, kernels):
    """From the second of three repeats on, on both ranks."""
    graphs, more = zip(
        (4, {"options": {"stationary": "C", "chunk": 16}}),
        (4, {"options": {"stationary": "C", "chunk": 16}, "prefetch": 0, "max_gemms": 2}),
        (4, {"options": {"stationary": "C", "schedule": "greedy"}}),
        (0, {"options": {"stationary": "C"}, "transport": "rma"}),  # through the host
        (0, {"options": {"stationary": "A"}}),  # a Fence before others add to zeros
    )
    cases = [{**SHAPE, "a": "row", "b": "column", "c": "block", **each} for each in more]
    found = mpirun(2, "fake_gpu.py", kernels, cases)
    assert {(record["status"], record["error"]) for record in found["records"]} == {("ok", 0.0)}
    assert (found["graphs"], found["left"]) == ([*graphs], 0)


def overlapping(**more):
    """Every program of fused overlap, experts too; in the first run hosts signal, in the second
    streams."""
    for x, (name, options) in enumerate(OVERLAP + EXPERTS):
        if name not in ("te_chunks", "async_tp") and "moe" not in name:
            options = options | {"tile": (5, 16)[x % 2]}
        get = ("copy", "view")[x // 2 % 2]
        case = {"algorithm": name, "options": options, "get": get, "warmup": 1}
        if "moe" in name:
            case["options"] = options | {"experts": 5, "topk": 2, "routing": "skewed:1"}
            case["transpose"] = (None, "a")[x % 2]
        yield {"m": 67, "n": 48, "k": 56} | case | more


def test_fused_overlap_is_exact_through_the_gpu_code_where_streams_wait_for_flags(
    mpirun, dealt, kernels
):
    more = {"devices": 3, "copy_streams": 2}
    wanted = [*overlapping(**more), *overlapping(**more, max_gemms=2, dtype="bfloat16:float32")]
    wanted = [
        case
        for case in wanted
        if case.get("dtype") is None or case["algorithm"] in ("ag_gemm", "ag_moe", "moe_rs")
    ]
    wanted = wanted[:3] + dealt(wanted[3:], 0, 4)
    found = mpirun(3, "fake_gpu.py", kernels, wanted)
    columns = "status", "error", "progress", "copy_streams"
    told = [tuple(record[name] for name in columns) for record in found["records"]]
    assert told == [("ok", 0.0, "streams", 2)] * len(wanted), [
        record["reason"] for record in found["records"]
    ]
    assert (found["left"], found["anew"]) == (0, 0)
    assert {record["blas_kernel"] for record in found["records"][:3]} == {"sm_90 parts"}


@pytest.mark.parametrize(
    "why", [{"devices": 1}, {"no_driver": True}, {"no_peers": True}], ids=lambda x: next(iter(x))
)
def test_hosts_signal_where_streams_cannot_or_must_not_wait(mpirun, dealt, kernels, why):
    """Ranks that share a GPU; a driver without stream memory operations; no peer access, where
    values go through the host."""
    wanted = dealt(overlapping(**why), len(next(iter(why))), 7)
    found = mpirun(2, "fake_gpu.py", kernels, wanted)
    told = [(record["status"], record["error"], record["progress"]) for record in found["records"]]
    who = "streams" if "no_peers" in why else "hosts"
    assert told == [("ok", 0.0, who)] * len(wanted), [
        record["reason"] for record in found["records"]
    ]
    assert found["left"] == 0

"""Collectives through shared memory under mpiexec: exact on one node and on several, planned bytes,
waits that are needed, refusals."""

import random

import pytest
from signal_runs import unnoticed

from algorithms import algorithms

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

MESHES = {1: ["1x1"], 2: ["1x2", "2x1"], 3: ["1x3", "3x1"], 4: ["1x4", "2x2", "4x1"]}
MESHES |= {5: ["5x1"], 6: ["2x3", "3x2"], 7: ["1x7"], 8: ["4x2", "2x4"]}
SHAPES = [(48, 48, 48), (16, 96, 24), (101, 67, 53), (5, 8, 8), (300, 40, 280)]
ONE_D = [
    ("fsdp", {}),
    ("tensor_parallel_1d", {"dataflow": "AG"}),
    ("tensor_parallel_1d", {"dataflow": "RdS"}),
    ("tensor_parallel_1d", {"dataflow": "RdS", "unroll": 3}),
]
ON_A_MESH = [name for name, algorithm in algorithms().items() if "mesh" in algorithm.options]
WITH = {"wang": [{}, {"unroll": 2}], "meshslice": [{"slices": 1, "block": 1}, {"slices": 3}]}
WITH |= {"summa": [{}, {"panel": 7}]}
MOVED = ("get_bytes", "put_bytes", "accumulate_bytes", "collective_bytes", "replica_bytes")


def programs(p):
    """(algorithm, options) of every mesh and dataflow of so many ranks, and the 1-D baselines."""
    for mesh in MESHES[p]:
        rows, cols = mesh.split("x")
        for dataflow in ("OS", "LS", "RS"):
            for name in ON_A_MESH:
                for more in WITH.get(name, [{}]):
                    if name != "cannon" or rows == cols:
                        yield name, {"dataflow": dataflow, "mesh": mesh, **more}
    yield from ONE_D
    if p == 4:
        for dataflow in ("OS", "LS", "RS"):
            yield "summa2.5d", {"dataflow": dataflow, "replicas": 2}


def cases_of(p, turn=0, every=1):
    """Cases, each of a shape, element type, way to read, look-ahead and way to drive progress of
    its own; every so many of them."""
    found = []
    for y, (m, n, k) in enumerate(SHAPES):
        for x, (name, options) in enumerate(programs(p)):
            if (x + y) % every == turn % every:
                small = name == "meshslice" and options.get("slices") == 3 and min(m, n, k) < 16
                found.append(
                    {
                        "m": m,
                        "n": n,
                        "k": k,
                        "algorithm": name,
                        "options": options | ({"slices": 1} if small else {}),
                        "iters": 2,
                        "warmup": 0,
                        "dtype": ("float32", "float64")[x % 2],
                        "prefetch": (x + y) % 4,
                        "get": "copy" if x % 4 == 3 else "view",
                        "progress": ("poll", "thread", "none")[x % 3],
                        "collectives": "direct",
                        "seed": x,
                    }
                )
    return found


def check(cases, answers):
    """All exact; what moved is what was planned."""
    for case, out in zip(cases, answers):
        assert (out["status"], out["error"]) == ("ok", 0.0), (case, out["status"], out["reason"])
        planned = out["planned"]
        for name in MOVED:
            moved = out[name] + (out["direct_bytes"] if name == "get_bytes" else 0)
            assert moved == planned[name], (case, name)
        assert out["pool_bytes"] <= planned["arena"], case


@pytest.mark.parametrize("p", MESHES)
def test_every_algorithm_is_exact_on_one_node(mpirun, dealt, p):
    """From 1 to 8 ranks; nothing is left for MPI."""
    cases = dealt(cases_of(p, every=p + 2), p, 6)
    answers = mpirun.cases(p, cases, timeout=200)
    check(cases, answers)
    assert {out["collectives"] for out in answers} <= {"direct", None}
    assert all(out["collective_bytes"] == 0 for out in answers)
    assert (p == 1) == all(out["collectives"] is None for out in answers)


@pytest.mark.parametrize("p, situation", [(4, "mixed"), (4, "nodes"), (6, "nodes"), (8, "mixed")])
def test_every_algorithm_is_exact_on_two_nodes(mpirun, dealt, p, situation):
    """Leaders talk between nodes; groups without two ranks on a node are MPI's."""
    cases = dealt(cases_of(p, turn=1, every=p), p // 2 + len(situation), 8)
    answers = mpirun.cases(p, cases, situation=situation, timeout=200)
    check(cases, answers)
    said = {out["collectives"] for out in answers}
    assert "direct" in said or "direct+mpi" in said
    assert any(out["put_bytes"] for out in answers)  # what leaders send


@pytest.mark.parametrize("p, situation", [(2, "direct"), (4, "direct"), (4, "mixed"), (4, "nodes")])
def test_random_delays_change_no_result_and_nothing_deadlocks(mpirun, dealt, p, situation):
    cases = dealt(random.Random(p).sample(cases_of(p), 24), len(situation), 2)
    options = ("--delays", "1", "--small-pieces")
    answers, naps = mpirun.cases_and_naps(p, cases, *options, situation=situation, timeout=200)
    check(cases, answers)
    assert set(naps) >= {"Signal", "_compute"}


@pytest.mark.parametrize("situation", ["direct", "rma", "remote", "mixed"])
def test_auto_is_direct_on_one_node_and_mpi_elsewhere(mpirun, situation):
    case = {"m": 40, "n": 48, "k": 56, "algorithm": "collective", "iters": 1, "warmup": 0}
    cases = [case | {"options": {"dataflow": flow, "mesh": "1x4"}} for flow in ("OS", "LS", "RS")]
    cases = [each | {"collectives": who} for each in cases for who in ("auto", None)]
    answers = mpirun.cases(4, cases, situation=situation)
    check(cases, answers)
    said = "direct" if situation == "direct" else "mpi"
    assert [out["collectives"] for out in answers] == [said, "mpi"] * 3


@pytest.mark.parametrize("situation", ["rma", "remote"])
def test_direct_is_refused_where_no_memory_is_shared(mpirun, situation):
    case = {"m": 8, "n": 8, "k": 8, "algorithm": "collective", "options": {}}
    (out,) = mpirun.cases(2, [case | {"collectives": "direct"}], situation=situation)
    assert out["status"] == "unsupported"
    assert "Use --collectives mpi or auto." in out["reason"]


# -- broken on purpose

LS = {"algorithm": "summa", "shape": [48, 36, 30], "direct": True}
LS |= {"options": {"dataflow": "LS", "mesh": "1x3", "panel": 4}}
RING = LS | {"algorithm": "wang", "options": {"dataflow": "LS", "mesh": "1x3"}}


def test_operands_that_change_from_run_to_run_are_those_of_the_run(mpirun):
    runs = {"direct": (3, [LS, RING], False), "mixed": (3, [LS, RING], True)}
    throttled = [case | {"throttle": [5e7, 1e-4], "prefetch": 1} for case in (LS, RING)]
    for situation, (p, cases, apart) in runs.items():
        more = [] if apart else throttled
        for out in mpirun(p, "signals.py", cases + more, "--delays", "3", situation=situation):
            assert not any(out["wrong"]), situation
            assert bool(out["apart"]) == apart


@pytest.mark.parametrize("mutant", ["no_flag_check", "no_epoch", "shared_slots"])
def test_signals_broken_on_purpose_give_wrong_results(mpirun, mutant):
    """A read before the flag, a flag of an earlier run, a slot that is written again too early."""
    cases = [RING] if mutant == "shared_slots" else [LS, RING]
    run = lambda cases: mpirun(3, "signals.py", cases, "--mutant", mutant)
    assert unnoticed(run, cases) == []


@pytest.mark.parametrize("operation", ["LS", "OS"])
def test_a_throttled_link_is_busy_as_long_as_what_is_read_in_place(mpirun, operation):
    """1x2: each rank reads half of A (OS), or half of the other's products (LS), 96·48 elements,
    over a link of its own; MPI's ring takes as long."""
    case = {"m": 96, "n": 96, "k": 96, "algorithm": "collective", "iters": 1, "warmup": 0}
    case |= {"options": {"dataflow": operation, "mesh": "1x2"}, "transport": "throttled:0.001,0"}
    found = mpirun.cases(2, [case | {"collectives": who} for who in ("direct", "mpi")])
    for out in found:
        assert (out["status"], out["error"]) == ("ok", 0.0)
        assert out["best_s"] >= 96 * 48 * 4 / 1e6

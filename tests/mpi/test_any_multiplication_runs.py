"""Multiplications of any layouts by any algorithm on ranks, with every type of step, on every
transport, on cores and on emulated GPUs: exact, with the plan's bytes, within the plan's memory; or
refused. Matrices of any layouts by the library.

``make test`` has a part of them, ``make test-full`` all. ``DRBENCH_SEARCH=SEED`` draws others.
"""

import itertools
import json
import os
import random
from collections import Counter
from types import SimpleNamespace

import pytest
from any_multiplications import any_layout
from cases import amiss
from multiplications_on_ranks import BACKENDS, RANKS, SITUATIONS, STEPS, draws

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

SEED = int(os.environ.get("DRBENCH_SEARCH", "0"))
#: How many multiplications of each algorithm are taken, and refused, by ``make test`` ...
TAKEN = {"ag2": 4, "ag2_moe": 4, "ag_gemm": 15, "ag_moe": 4, "async_tp": 12, "cannon": 13}
TAKEN |= {"collective": 14, "dtensor_mm": 10, "fsdp": 11, "gemm_ar": 4, "gemm_rs": 18}
TAKEN |= {"meshslice": 11, "moe_collective": 14, "moe_rs": 17, "moe_rs2": 2, "rs2": 4, "summa": 22}
TAKEN |= {"summa2.5d": 27, "te_chunks": 11, "tensor_parallel_1d": 8, "universal": 102, "wang": 12}
REFUSED = {"ag2_moe": 2, "dtensor_mm": 1, "meshslice": 3, "moe_rs2": 2}
#: ... and by ``make test-full``.
ALL_TAKEN = {"ag2": 50, "ag2_moe": 50, "ag_gemm": 83, "ag_moe": 64, "async_tp": 203, "cannon": 121}
ALL_TAKEN |= {"collective": 141, "dtensor_mm": 127, "fsdp": 127, "gemm_ar": 64, "gemm_rs": 207}
ALL_TAKEN |= {"meshslice": 167, "moe_collective": 169, "moe_rs": 203, "moe_rs2": 41, "rs2": 38}
ALL_TAKEN |= {"summa": 288, "summa2.5d": 369, "te_chunks": 83, "tensor_parallel_1d": 126}
ALL_TAKEN |= {"universal": 1184, "wang": 127}
ALL_REFUSED = {"ag2": 14, "ag2_moe": 22, "dtensor_mm": 10, "gemm_rs": 3, "meshslice": 6}
ALL_REFUSED |= {"moe_collective": 3, "moe_rs": 4, "moe_rs2": 23, "rs2": 26}
#: Ranks of the library, which has matrices of any layouts, by situation.
LIBRARY_RANKS = {**RANKS, "mixed": (3, 4, 6)}
PLACED = ("S(0)", "S(1)", "R", "P", "_S(0,2)", "_S(1,3)")
#: Options of the program by the number of ranks: ranks that are late now and then, and computes of
#: small segments, between which a rank polls MPI.
OPTIONS = {3: ("--delays", "1"), 4: ("--small-segments",), 6: ("--delays", "2", "--small-segments")}
#: The situation "mixed" with ranks that are numbered node by node, as on a cluster.
NODES = (("mixed", "numpy", 3), ("mixed", "cupy", 4))


@pytest.fixture(scope="module")
def ran(mpirun, dealt):
    """``ran(situation, backend)``: ranks, algorithm, case and answer of each multiplication; how
    many were wanted of each type of step; and before what ranks slept."""
    of_step, known = len(dealt(range(60), 0, 12)), {}

    def run(situation, backend):
        if (situation, backend) not in known:
            found, naps = [], Counter()
            every_other = (SITUATIONS.index(situation) + BACKENDS.index(backend)) % 2
            of_algorithm = len(dealt(range(8), 8 * every_other, 16))
            for p, drawn in draws(situation, backend, of_algorithm, of_step, SEED).items():
                where = "nodes" if (situation, backend, p) in NODES else situation
                options = OPTIONS.get(p, ()) if backend == "numpy" else ()
                asked = [made for _, made in drawn]
                answers = mpirun.cases(p, asked, *options, situation=where)
                naps.update(mpirun.naps)
                found += [(p, *each, out) for each, out in zip(drawn, answers)]
            known[situation, backend] = SimpleNamespace(runs=found, of_step=of_step, naps=naps)
        return known[situation, backend]

    return run


def unexpected(situation, p, made, out):
    """What of the record of an exact case on cores is not as the case and the situation demand."""
    copied, seen = out["get_bytes"], out["direct_bytes"]
    universal, far = made["algorithm"] == "universal", situation in ("rma", "remote")
    nodes = {"mixed": 2, "remote": p}.get(situation, 1)
    transport = "rma" if far else "mixed" if nodes > 1 else "direct"
    schedule = made.get("schedule", "direct").removesuffix(":1x2")
    wrong = {
        "read in place": seen and (far or made["get"] == "copy"),
        "copied": copied and universal and situation == "direct" and made["get"] == "view"
        and not out["panel_bytes"],
        "packed": out["panel_bytes"] and made.get("pack") == "never",
        "collective": universal and out["collective_bytes"],
        "transport": (out["nodes"], out["transport"], out["ranks"]) != (nodes, transport, p),
        "schedule": universal and out["schedule"] != schedule,
        "dataflow, mesh": [out[x] for x in ("dataflow", "mesh") if x in made and out[x] != made[x]],
    }  # fmt: skip
    return {what: why for what, why in wrong.items() if why}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_any_multiplication_is_exact_and_moves_the_planned_bytes(ran, situation, backend):
    """Or all ranks refuse it with the same line. Every type of step is in as many as are wanted."""
    found, wrong, covered = ran(situation, backend), [], Counter()
    for p, _, made, out in found.runs:
        if out["status"] in ("usage", "unsupported"):
            reason = out["reason"]
            right = reason and "\n" not in reason and out["same_on_every_rank"]
            faults = [] if right and not out["left_open"] else [reason, out["left_open"]]
        else:
            faults = amiss(made, out)
            if backend == "numpy" and not faults:
                faults = unexpected(situation, p, made, out)
            covered.update(out["steps"])
        wrong += [(p, made, faults)] * bool(faults)
    assert not wrong
    missing = {step: covered[step] for step in STEPS if covered[step] < found.of_step}
    assert not missing
    assert backend == "cupy" or {*found.naps} >= {"_compute", "_arrived"}


def test_algorithms_take_and_refuse_as_many_multiplications_as_expected(ran):
    """Else one that refuses everything would be exact."""
    tally, whole = {"ok": Counter(), "unsupported": Counter()}, ran("direct", "numpy").of_step == 60
    for each in itertools.product(SITUATIONS, BACKENDS):
        for _, name, _, out in ran(*each).runs:
            tally[out["status"]][name] += 1
    expected = (ALL_TAKEN, ALL_REFUSED) if whole else (TAKEN, REFUSED)
    assert SEED or (tally["ok"], tally["unsupported"]) == expected


@pytest.mark.parametrize("situation", SITUATIONS)
def test_any_layouts_are_multiplied_and_redistributed_by_the_library(mpirun, dealt, situation):
    """Placements of DTensor, strided and pending ones too, more often than others."""
    chance = random.Random(f"layouts {situation} {SEED}")
    refused = False
    for p, meshes in {1: (), 2: ("2",), 3: (), 4: ("2x2",), 6: ("6", "2x3", "3x2")}.items():
        if p not in LIBRARY_RANKS[situation]:
            continue
        shapes = [(chance.randint(2, 14), chance.randint(2, 14)) for _ in range(40)]
        texts = [any_layout(chance, shape, p, True) for shape in shapes]
        texts = [each for each in texts if not each.startswith(("grid:", "traditional"))]  # roles
        for mesh in meshes:
            every = itertools.product(PLACED, repeat=mesh.count("x") + 1)
            texts += [f"{','.join(placements)}@{mesh}" for placements in every]
        seed, count = str(chance.randrange(1 << 20)), str(len(dealt(range(40), 0, 8)) + 2)
        words = "exact", json.dumps(texts), seed, count
        found = mpirun(p, "library.py", *words, situation=situation)
        assert (found["wrong"], found["left"]) == ([], 0), (p, words)
        refused |= found["refused"]
    # MPI adds no bfloat16: where that needed it, another matrix stays
    assert refused == (situation != "direct")

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
from drawn_layouts import blocks
from multiplications_on_ranks import BACKENDS, RANKS, SITUATIONS, STEPS, draws

from drbench.algorithms import algorithms

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

SEED = int(os.environ.get("DRBENCH_SEARCH", "0"))
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
    """``ran(situation, backend)``: ranks, algorithm, case, whether it is refused without MPI, and
    answer of each multiplication; how many were wanted of each type of step; and before what ranks
    slept."""
    of_step, known = len(dealt(range(60), 0, 12)), {}

    def run(situation, backend):
        if (situation, backend) not in known:
            found, naps = [], Counter()
            every_other = (SITUATIONS.index(situation) + BACKENDS.index(backend)) % 2
            of_algorithm = len(dealt(range(8), 8 * every_other, 16))
            few_more = of_step // 20  # a program may be decided otherwise where it runs
            drawn_by_ranks = draws(situation, backend, of_algorithm, of_step + few_more, SEED)
            for p, drawn in drawn_by_ranks.items():
                where = "nodes" if (situation, backend, p) in NODES else situation
                options = OPTIONS.get(p, ()) if backend == "numpy" else ()
                asked = [made for _, made, _ in drawn]
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
    """Or all ranks refuse it with the same line, if it is refused without MPI too. Every type of
    step is in as many as are wanted."""
    found, wrong, covered = ran(situation, backend), [], Counter()
    for p, _, made, refused, out in found.runs:
        if refused:
            reason = out["reason"]
            right = out["status"] in ("usage", "unsupported") and reason and "\n" not in reason
            right = right and out["same_on_every_rank"] and not out["left_open"]
            faults = [] if right else [out["status"], reason, out["left_open"]]
        else:
            faults = amiss(made, out)
            if backend == "numpy" and not faults:
                faults = unexpected(situation, p, made, out)
            covered.update(out["steps"])
        wrong += [(p, made, faults)] * bool(faults)
    assert not wrong
    missing = {step: covered[step] for step in STEPS if covered[step] < found.of_step}
    assert not missing
    assert backend == "cupy" or {*found.naps} >= {"_start", "_arrived"}


def test_every_algorithm_runs_and_few_multiplications_are_refused(ran):
    """Exactly how many are refused tests/algorithms/test_any_multiplication.py proves."""
    every = [run for each in itertools.product(SITUATIONS, BACKENDS) for run in ran(*each).runs]
    taken = Counter(name for _, name, _, refused, _ in every if not refused)
    assert not {name: taken[name] for name in algorithms() if taken[name] < 2}
    assert taken.total() > 0.95 * len(every)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_any_layouts_are_multiplied_and_redistributed_by_the_library(mpirun, dealt, situation):
    """And parts of matrices. Placements of DTensor, strided and pending ones too, are more frequent
    than other layouts."""
    chance = random.Random(f"layouts {situation} {SEED}")
    refused = False
    for p, meshes in {1: (), 2: ("2",), 3: (), 4: ("2x2",), 6: ("6", "2x3", "3x2")}.items():
        if p not in LIBRARY_RANKS[situation]:
            continue
        shapes = [(chance.randint(2, 14), chance.randint(2, 14)) for _ in range(40)]
        texts = [any_layout(chance, shape, p, True) for shape in shapes]
        texts = [each for each in texts if not each.startswith(("grid:", "traditional"))]  # roles
        texts += [blocks(chance, p) for _ in range(12)]
        for mesh in meshes:
            every = itertools.product(PLACED, repeat=mesh.count("x") + 1)
            texts += [f"{','.join(placements)}@{mesh}" for placements in every]
        seed, count = str(chance.randrange(1 << 20)), str(len(dealt(range(60), 0, 6)) + 4)
        words = "exact", json.dumps(texts), seed, count
        found = mpirun(p, "library.py", *words, situation=situation)
        assert (found["wrong"], found["left"]) == ([], 0), (p, words)
        refused |= found["refused"]
    # MPI adds no bfloat16: where that needed it, another matrix stays
    assert refused == (situation != "direct")

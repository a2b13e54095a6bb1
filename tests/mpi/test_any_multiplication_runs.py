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
from cases import amiss, case
from multiplications_on_ranks import BACKENDS, SITUATIONS, STEPS, draws

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

SEED = int(os.environ.get("DRBENCH_SEARCH", "0"))
#: Options of the program by the number of ranks: ranks that are late now and then, and computes of
#: small segments, between which a rank polls MPI.
OPTIONS = {3: ("--delays", "1"), 4: ("--small-segments",), 6: ("--delays", "2", "--small-segments")}


@pytest.fixture(scope="module")
def ran(mpirun, dealt):
    """``ran(situation, backend)``: ranks, algorithm, case and answer of each multiplication; how
    many of each algorithm and of each type of step were wanted; and when ranks slept."""
    wanted = len(dealt(range(8), 0, 8)), len(dealt(range(60), 0, 10))
    known = {}

    def run(situation, backend):
        if (situation, backend) not in known:
            found, naps = [], Counter()
            for p, drawn in draws(situation, backend, *wanted, SEED).items():
                where = "nodes" if (situation, p) == ("mixed", 6) else situation
                options = OPTIONS.get(p, ()) if backend == "numpy" else ()
                asked = [made for _, made in drawn]
                answers = mpirun.cases(p, asked, *options, situation=where)
                naps.update(mpirun.naps)
                found += [(p, *each, out) for each, out in zip(drawn, answers)]
            known[situation, backend] = SimpleNamespace(runs=found, wanted=wanted, naps=naps)
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
    for p, name, made, out in found.runs:
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
    missing = {step: covered[step] for step in STEPS if covered[step] < found.wanted[1]}
    assert not missing
    assert backend == "cupy" or {*found.naps} >= {"_compute", "_arrived"}


def test_as_many_multiplications_of_each_algorithm_as_expected_are_refused(ran):
    tally = {}
    for situation, backend in itertools.product(SITUATIONS, BACKENDS):
        for _, name, _, out in ran(situation, backend).runs:
            tally.setdefault(name, Counter())[out["status"]] += 1
    refused = {name: each.total() - each["ok"] for name, each in tally.items()}
    print({k: dict(v) for k, v in tally.items()})
    assert SEED or {name: count for name, count in refused.items() if count} == {}

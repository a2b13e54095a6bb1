"""Multiplications of random layouts by random algorithms on ranks are exact: by the benchmark and
by the library, on every transport.

``DRBENCH_SEARCH="FIRST COUNT"`` tries so many other seeds instead, in each situation.
"""

import itertools
import json
import os
import random

import pytest
from any_multiplications import any_layout, any_multiplication
from cases import amiss, case

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

SITUATIONS = ("direct", "rma", "mixed", "remote")
FIRST, COUNT = map(int, os.environ.get("DRBENCH_SEARCH", "0 20").split())
#: Numbers of ranks that have started already for other tests; elsewhere than on one node fewer.
RANKS = {"direct": (1, 2, 3, 4, 5, 6), "rma": (1, 2, 3, 4, 5, 6)}
PLACED = ("S(0)", "S(1)", "R", "P", "_S(0,2)", "_S(1,3)")


def drawn(situation, wanted):
    """ranks -> cases of run_cases.py; of the seeds, those with as many ranks as are started."""
    found, seed = {}, FIRST * 100
    chance = random.Random(f"{situation} {FIRST}")
    count = 0
    while count < wanted:
        seed += 1
        made = any_multiplication(seed * len(SITUATIONS) + SITUATIONS.index(situation))
        if made["p"] not in RANKS.get(situation, (2, 3, 4, 6)):
            continue
        how = {"dtype": chance.choice(("float32", "float64")), "seed": seed, "iters": 1 + seed % 2}
        how |= {"prefetch": chance.choice((0, 1, 2, 3, "all", None))}
        how |= {"get": chance.choice(("view", "copy"))}
        alpha, beta = chance.choice(((1.0, 0.0), (1.0, 1.0), (-2.0, 3.0), (2.0, -2.0), (3.0, 0.0)))
        how |= {"alpha": made.get("alpha", alpha), "beta": made.get("beta", beta)}
        how |= {"transpose": made.get("transpose"), "algorithm": made["algorithm"]}
        how |= {name: value for name, value in made["options"].items() if value is not None}
        found.setdefault(made["p"], []).append(case(*made["sizes"], *made["texts"], **how))
        count += 1
    return found


@pytest.mark.parametrize("situation", SITUATIONS)
def test_any_multiplication_is_exact_or_refused_in_one_line(mpirun, situation):
    tally, wrong = {}, []
    for p, cases in sorted(drawn(situation, COUNT).items()):
        for first in range(0, len(cases), 50):
            some = cases[first : first + 50]
            for made, out in zip(some, mpirun.cases(p, some, situation=situation)):
                status, reason = out["status"], out["reason"] or ""
                tally[status] = tally.get(status, 0) + 1
                refused = status in ("usage", "unsupported") and reason and "\n" not in reason
                if out["left_open"] if refused else amiss(made, out):
                    wrong.append((p, made, out["left_open"], reason, amiss(made, out)))
    print(situation, tally)
    assert not wrong, wrong
    assert tally["ok"] > sum(tally.values()) / 2, tally


@pytest.mark.parametrize("situation", SITUATIONS)
def test_any_layouts_are_multiplied_and_redistributed_by_the_library(mpirun, dealt, situation):
    """Placements of DTensor, strided and pending ones too, more often than others."""
    chance = random.Random(f"layouts {situation} {FIRST}")
    refused = False
    for p, meshes in {1: (), 2: ("2",), 3: (), 4: ("2x2",), 6: ("6", "2x3", "3x2")}.items():
        if p not in RANKS.get(situation, (2, 3, 4, 6)):
            continue
        shapes = [(chance.randint(2, 14), chance.randint(2, 14)) for _ in range(40)]
        texts = [any_layout(chance, shape, p, True) for shape in shapes]
        texts = [each for each in texts if not each.startswith(("grid:", "traditional"))]  # roles
        for mesh in meshes:
            every = itertools.product(PLACED, repeat=mesh.count("x") + 1)
            texts += [f"{','.join(placements)}@{mesh}" for placements in every]
        seed, count = str(chance.randrange(1 << 20)), str(len(dealt(range(2 * COUNT), 0, 8)) + 2)
        words = "exact", json.dumps(texts), seed, count
        found = mpirun(p, "library.py", *words, situation=situation)
        assert (found["wrong"], found["left"]) == ([], 0), (p, words)
        refused |= found["refused"]
    # MPI adds no bfloat16: where that needed it, another matrix stays
    assert refused == (situation != "direct")

"""Whatever DTensor may place on a mesh is multiplied exactly, in every copy of C."""

import random
from itertools import product

import pytest
from cases import case

from partitions.enumerate import placements

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]

MORE = ("S(0)", "S(1)", "R", "P", "_S(0,2)", "_S(1,3)")
SITUATIONS = ("direct", "rma", "mixed", "remote")


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_sample_of_all_placements_on_2x2(mpirun, dealt, situation):
    chance, more = random.Random(situation), list(placements("2x2", MORE))
    triples = chance.sample(list(product(placements("2x2"), repeat=3)), 24)
    triples += [tuple(chance.choice(more) for _ in "ABC") for _ in range(12)]
    cases = [(chance.choice([(7, 5, 9), (8, 12, 4), (3, 2, 1)]), *texts) for texts in triples]
    cases = dealt(cases, 0, 4)
    found = mpirun(4, "placements.py", cases, situation=situation)
    assert found == {"done": 3 * len(cases), "wrong": []}


@pytest.mark.parametrize("situation", ("direct", "mixed"))
def test_a_sample_of_placements_on_six_ranks(mpirun, dealt, situation):
    chance = random.Random(situation)
    texts = [text for mesh in ("6", "2x3", "3x2", "1x6x1") for text in placements(mesh, MORE)]
    cases = [((7, 11, 5), *(chance.choice(texts) for _ in "ABC")) for _ in range(12)]
    cases = dealt(cases, 0, 2)
    found = mpirun(6, "placements.py", cases, situation=situation)
    assert found == {"done": 3 * len(cases), "wrong": []}


def test_a_pending_result_scaled_and_transposed_is_verified(mpirun, dealt):
    """alpha and beta count once for each term, which held what C is filled with."""
    placed = "S(0),R@2x2", "_S(0,3),S(1)@2x2"
    given = product(("P", "R,P@2x2", "P,S(1)@2x2"), ("", "a", "ab"), ("integer", "uniform"), "AC")
    cases = [
        case(37, 33, 29, *placed, c, transpose=transpose, fill=fill, stationary=stationary)
        | {"alpha": 3.0, "beta": 2.0 * (x % 3 > 0), "iters": 2}
        for x, (c, transpose, fill, stationary) in enumerate(given)
    ]
    mpirun.exact(4, dealt(cases, 0, 4))

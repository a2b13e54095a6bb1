"""Whatever DTensor may place on a mesh is multiplied exactly, in every copy of C."""

import random
from itertools import product

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]

WORDS = ("S(0)", "S(1)", "R", "P")
MORE = (*WORDS, "_S(0,2)", "_S(1,3)")
SITUATIONS = ("direct", "rma", "mixed", "remote")


def placements(mesh, words=WORDS):
    """Placements of a matrix on a mesh, a choice of the words for each mesh dimension."""
    return [f"{','.join(each)}@{mesh}" for each in product(words, repeat=mesh.count("x") + 1)]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_sample_of_all_placements_on_2x2(mpirun, dealt, situation):
    chance, more = random.Random(situation), placements("2x2", MORE)
    triples = chance.sample(list(product(placements("2x2"), repeat=3)), 24)
    triples += [tuple(chance.choice(more) for _ in "ABC") for _ in range(12)]
    cases = [(chance.choice([(7, 5, 9), (8, 12, 4), (3, 2, 1)]), *texts) for texts in triples]
    cases = dealt(cases, 0, 4)
    found = mpirun(4, "placements.py", cases, situation=situation, timeout=150)
    assert found == {"done": 3 * len(cases), "wrong": []}


@pytest.mark.parametrize("situation", ("direct", "mixed"))
def test_a_sample_of_placements_on_six_ranks(mpirun, dealt, situation):
    chance = random.Random(situation)
    texts = [text for mesh in ("6", "2x3", "3x2", "1x6x1") for text in placements(mesh, MORE)]
    cases = [((7, 11, 5), *(chance.choice(texts) for _ in "ABC")) for _ in range(12)]
    cases = dealt(cases, 0, 2)
    found = mpirun(6, "placements.py", cases, situation=situation, timeout=150)
    assert found == {"done": 3 * len(cases), "wrong": []}


def test_a_pending_result_scaled_and_transposed_is_verified(mpirun, dealt):
    """alpha and beta count once for each term, which held what C is filled with."""
    layout = {"a": "S(0),R@2x2", "b": "_S(0,3),S(1)@2x2", "m": 37, "n": 33, "k": 29}
    given = product(("P", "R,P@2x2", "P,S(1)@2x2"), ("", "a", "ab"), ("integer", "uniform"), "AC")
    cases = [
        layout | {"c": c, "transpose": transpose, "fill": fill, "stationary": stationary}
        for c, transpose, fill, stationary in given
    ]
    cases = [case | {"alpha": 3.0, "beta": 2.0 * (x % 3 > 0)} for x, case in enumerate(cases)]
    cases = dealt(cases, 0, 4)
    answers = mpirun.cases(4, cases)
    assert [each["status"] for each in answers] == ["ok"] * len(cases)

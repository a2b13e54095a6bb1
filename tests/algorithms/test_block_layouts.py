"""The universal algorithm on layouts of ScaLAPACK, SLATE and COSTA, on some of the ranks."""

import random

import numpy as np
import pytest
from any_multiplications import programs_of
from arena import multiplied
from drawn_layouts import blocks

from drbench.check.check import check

OPTIONS = {
    "work": ("own", "own", "level"),
    "sums": ("accumulate", "push"),
    "fetch": ("slice", "tile", "rows"),
    "offset": ("auto", "axis", "interval"),
}


@pytest.mark.parametrize("seed", range(60))
def test_products_are_exact_and_pass_the_check(seed):
    chance = random.Random(seed)
    p = chance.choice((1, 2, 3, 4, 6, 8))
    options = {name: chance.choice(values) for name, values in OPTIONS.items()}
    case = {
        "algorithm": "universal",
        "sizes": [chance.randint(1, 12) for _ in "mnk"],
        "p": p,
        "texts": [blocks(chance, p) for _ in "ABC"],
        "transpose": "",
        "beta": 0.0,
        "nodes": None,
        "machine": "none",
        "in_place": True,
        "options": options | {"stationary": chance.choice("ABC"), "chunk": "none"},
    }
    found, traces = programs_of(case)
    assert not check(traces).findings, case
    c, right = multiplied(traces, 1, seed)
    assert np.array_equal(c[0], right), case

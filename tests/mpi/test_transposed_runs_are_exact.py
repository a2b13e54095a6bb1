"""Operands stored transposed, alpha and beta under mpiexec: exact on every transport, with the
bytes of the plan, by every algorithm; many cases in one mpiexec."""

import itertools

import pytest
from cases import case

from algorithms import algorithms
from drbench.program.problem import TRANSPOSES

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]

SCALARS = ((1.0, 0.0), (1.0, 1.0), (-2.0, 3.0), (0.0, 2.0), (3.0, 0.0))
RUNS = [(2, "direct"), (4, "direct"), (4, "rma"), (4, "mixed")]


def on_meshes(p):
    """Every 2-D and 1-D algorithm in every form, with beta and without."""
    cases = []
    for x, (name, transpose) in enumerate(itertools.product(algorithms(plain=True), TRANSPOSES)):
        described = algorithms()[name].options.get("dataflow")
        dataflows = described.tried if described else (None,)
        for y, dataflow in enumerate(dataflows if name != "universal" else ()):
            if name == "cannon" and p == 2:
                continue
            alpha, beta = SCALARS[(x + y) % len(SCALARS)]
            beta = 0.0 if name == "gemm_ar" else beta  # which makes C anew
            shapes = [(48, 48, 48), (16, 96, 24), (101, 67, 53), (3, 5, 2)]
            if algorithms()[name].signals:  # which need a share of each on every rank
                shapes[3] = (7, 7, 7)
            m, n, k = shapes[(x + 2 * y) % 4]
            options = {"slices": 1, "block": 1} if (name, m) == ("meshslice", 3) else {}
            made = case(m, n, k, algorithm=name, alpha=alpha, beta=beta, prefetch=y, iters=2)
            made |= options | ({"dataflow": dataflow} if dataflow else {})
            cases.append(made | {"transpose": transpose, "dtype": ("float32", "float64")[x % 2]})
    return cases


@pytest.mark.parametrize("situation", ["direct", "rma"])
def test_grids_that_leave_ranks_out_take_every_form(mpirun, situation):
    """A transposed grid of fewer ranks than there are has no text form; that ended the ranks."""
    grids = itertools.product(TRANSPOSES[1:], ("grid:1x1x2", "grid:2x1x1", "grid:1x2x1"))
    cases = [case(6, 7, 8, *[grid] * 3, transpose=transpose) for transpose, grid in grids]
    mpirun.exact(3, cases, situation=situation)


@pytest.mark.parametrize("p, situation", RUNS)
def test_every_algorithm_takes_every_form(mpirun, dealt, p, situation):
    turn = RUNS.index((p, situation))
    mpirun.exact(p, dealt(on_meshes(p), turn, 16), situation=situation)


@pytest.mark.parametrize("situation", ["direct", "rma"])
def test_devices_take_every_form(mpirun, dealt, situation):
    """The asynchronous executor on worker threads."""
    plain = case(48, 40, 56, backend="cupy", progress="poll")
    cases = [
        plain
        | {"transpose": transpose, "alpha": alpha, "beta": beta, "stationary": stationary}
        | {"a": "tiles:17x9", "b": "row", "c": "column/c2"}
        for transpose, stationary in itertools.product(TRANSPOSES[1:], "ABC")
        for alpha, beta in SCALARS[1:4]
    ]
    cases += [
        plain | {"transpose": "ab", "alpha": 2.0, "beta": beta, "algorithm": name}
        for name in algorithms(plain=True)
        for beta in (0.0, 3.0)
        if name not in ("cannon", "universal") and not (name == "gemm_ar" and beta)
    ]
    cases += [
        plain
        | {"transpose": transpose, "alpha": 2.0, "beta": beta, "algorithm": name, "dtype": dtype}
        | options
        | {"experts": 4, "topk": 2, "routing": "skewed"}
        for name in algorithms(plain=False)
        for options in ([{"dataflow": "AG"}, {"dataflow": "RS"}] if "collect" in name else [{}])
        for transpose, beta, dtype in (("a", 3.0, "float64"), ("ab", 0.0, "bfloat16:float32"))
    ]
    mpirun.exact(2, dealt(cases, len(situation), 6), situation=situation)


def test_values_of_c_that_do_not_count_are_never_read(mpirun):
    """C is NaN before every run; with beta 0 nothing of it may come through, alpha 0 or not."""
    cases = [
        case(33, 21, 17, a, None, c, stationary=stationary, alpha=alpha, beta=0.0, transpose="b")
        for a, c in (("row", "row/c2"), ("column", "block"), ("row/c2", "tiles:5x5"))
        for stationary in "ABC"
        for alpha in (0.0, 2.0)
    ]
    mpirun.exact(2, cases)


def test_a_pending_result_scaled_and_transposed_is_verified(mpirun, dealt):
    """alpha and beta count once for each term, which held what C is filled with."""
    placed = "S(0),R@2x2", "_S(0,3),S(1)@2x2"
    given = itertools.product(
        ("P", "R,P@2x2", "P,S(1)@2x2"), ("", "a", "ab"), ("integer", "uniform"), "AC"
    )
    cases = [
        case(37, 33, 29, *placed, c, transpose=transpose, fill=fill, stationary=stationary)
        | {"alpha": 3.0, "beta": 2.0 * (x % 3 > 0), "iters": 2}
        for x, (c, transpose, fill, stationary) in enumerate(given)
    ]
    mpirun.exact(4, dealt(cases, 0, 6))

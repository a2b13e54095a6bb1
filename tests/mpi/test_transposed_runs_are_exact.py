"""Operands stored transposed, alpha and beta under mpiexec: exact on every transport, with the
bytes of the plan, by every algorithm; many cases in one mpiexec."""

from itertools import product

import pytest

from algorithms import algorithms
from drbench.program.problem import TRANSPOSES

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]

SCALARS = ((1.0, 0.0), (1.0, 1.0), (-2.0, 3.0), (0.0, 2.0), (3.0, 0.0))
RUNS = [(2, "direct"), (4, "direct"), (4, "rma"), (4, "mixed")]


def on_meshes(p):
    """Every 2-D and 1-D algorithm in every form, with beta and without."""
    cases = []
    for x, (name, transpose) in enumerate(product(algorithms(plain=True), TRANSPOSES)):
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
            cases.append(
                {
                    "m": m,
                    "n": n,
                    "k": k,
                    "algorithm": name,
                    "transpose": transpose or None,
                    "alpha": alpha,
                    "beta": beta,
                    "options": {"dataflow": dataflow} | options if dataflow else options,
                    "dtype": ("float32", "float64")[x % 2],
                    "prefetch": y,
                    "iters": 2,
                    "warmup": 0,
                }
            )
    return cases


def exact(mpirun, p, situation, cases):
    wrong = []
    for case, out in zip(cases, mpirun.cases(p, cases, situation=situation, timeout=150)):
        right = out["status"] == "ok" and out["same_on_every_rank"]
        right = right and (
            out["error"] == 0 or (case.get("fill") == "uniform" and out["error"] <= 1)
        )
        moved = out.get("planned") or {}
        for name in ("accumulate_bytes", "replica_bytes", "collective_bytes") if right else ():
            right = right and out[name] == moved[name]
        if not right:
            wrong.append((case, out["status"], out["reason"], out.get("error")))
    assert wrong == []


@pytest.mark.parametrize("situation", ["direct", "rma"])
def test_grids_that_leave_ranks_out_take_every_form(mpirun, situation):
    """A transposed grid of fewer ranks than there are has no text form; that ended the ranks."""
    cases = [
        {"m": 6, "n": 7, "k": 8, "iters": 1, "warmup": 0, "transpose": transpose}
        | dict.fromkeys("abc", grid)
        for transpose in TRANSPOSES[1:]
        for grid in ("grid:1x1x2", "grid:2x1x1", "grid:1x2x1")
    ]
    exact(mpirun, 3, situation, cases)


@pytest.mark.parametrize("p, situation", RUNS)
def test_every_algorithm_takes_every_form(mpirun, dealt, p, situation):
    turn = RUNS.index((p, situation))
    exact(mpirun, p, situation, dealt(on_meshes(p), turn, 9))


@pytest.mark.parametrize("situation", ["direct", "rma"])
def test_devices_take_every_form(mpirun, dealt, situation):
    """The asynchronous executor on worker threads."""
    plain = {"m": 48, "n": 40, "k": 56, "iters": 1, "warmup": 0, "backend": "numpy-async"}
    cases = [
        plain
        | {"transpose": transpose, "alpha": alpha, "beta": beta, "stationary": stationary}
        | {"a": "tiles:17x9", "b": "row", "c": "column/c2"}
        for transpose, stationary in product(TRANSPOSES[1:], "ABC")
        for alpha, beta in SCALARS[1:4]
    ]
    cases += [
        plain | {"transpose": "ab", "alpha": 2.0, "beta": beta, "algorithm": name}
        for name, algorithm in algorithms(plain=True).items()
        for beta in (0.0, 3.0)
        if name not in ("cannon", "universal") and not (name == "gemm_ar" and beta)
    ]
    cases += [
        plain
        | {"transpose": transpose, "alpha": 2.0, "beta": beta, "algorithm": name}
        | {"dtype": dtype}
        | {"options": options | {"experts": 4, "topk": 2, "routing": "skewed"}}
        for name, algorithm in algorithms(plain=False).items()
        for options in ([{"dataflow": "AG"}, {"dataflow": "RS"}] if "collect" in name else [{}])
        for transpose, beta, dtype in (("a", 3.0, "float64"), ("ab", 0.0, "bfloat16:float32"))
    ]
    cases = [case | {"progress": "poll"} for case in dealt(cases, len(situation), 4)]
    answers = mpirun.cases(2, cases, situation=situation, timeout=150)
    wrong = [
        (case, out["status"], out["reason"])
        for case, out in zip(cases, answers)
        if (out["status"], out["error"]) != ("ok", 0.0)
    ]
    assert wrong == []


def test_values_of_c_that_do_not_count_are_never_read(mpirun):
    """C is NaN before every run; with beta 0 nothing of it may come through, alpha 0 or not."""
    cases = [
        {"m": 33, "n": 21, "k": 17, "a": a, "c": c, "stationary": stationary, "alpha": alpha}
        | {"beta": 0.0, "transpose": "b", "iters": 1, "warmup": 0}
        for a, c in (("row", "row/c2"), ("column", "block"), ("row/c2", "tiles:5x5"))
        for stationary in "ABC"
        for alpha in (0.0, 2.0)
    ]
    exact(mpirun, 2, "direct", cases)

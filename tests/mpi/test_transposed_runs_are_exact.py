"""Operands stored transposed, alpha and beta under mpiexec: exact on every transport, with the
bytes of the plan, by every algorithm; many cases in one mpiexec."""

import random
from itertools import product

import pytest

from algorithms import algorithms
from drbench.program.problem import TRANSPOSES

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(180)]

KINDS = ("row", "column", "block", "tiles:17x9", "tiles:40x64")
SCALARS = ((1.0, 0.0), (1.0, 1.0), (-2.0, 3.0), (0.0, 2.0), (3.0, 0.0))
RUNS = [(2, "direct"), (4, "direct"), (4, "rma"), (4, "mixed"), (2, "remote"), (4, "remote")]


def universal(p, situation):
    """All forms, stationary matrices and scalars, the rest drawn with a fixed seed; where peers are
    not read in place, every other one: how an operand is stored matters to products, not to
    messages, and each situation takes its turn."""
    chance, cases = random.Random(f"{p} {situation}"), []
    turn = None if situation == "direct" else ("rma", "mixed", "remote").index(situation) + p // 4
    for y, (transpose, stationary) in enumerate(product(TRANSPOSES, "ABC")):
        for x in range(len(SCALARS)):
            if turn is not None and (x + y + turn) % 2:
                continue
            factor = lambda: f"/c{chance.choice([1, 1, 2, p])}"
            alpha, beta = SCALARS[x]
            cases.append(
                {
                    "m": chance.choice([1, 7, 48, 65]),
                    "n": chance.choice([1, 5, 31, 70]),
                    "k": chance.choice([1, 6, 64, 130]),
                    **{name: chance.choice(KINDS) + factor() for name in "abc"},
                    "transpose": transpose or None,
                    "stationary": stationary,
                    "alpha": alpha,
                    "beta": beta,
                    "chunk": chance.choice([None, 5, 33]) or "none",
                    "prefetch": chance.choice([0, 1, 2]),
                    "get": chance.choice(["view", "copy"]),
                    "progress": chance.choice(["poll", "none"]),
                    "dtype": chance.choice(["float32", "float64"]),
                    "fill": chance.choice(["integer", "integer", "uniform"]),
                    "replicate_result": chance.random() < 0.3,
                    "pack": chance.choice(["always", "never"]),
                    "iters": 2,
                    "warmup": 0,
                    "seed": x,
                }
            )
    lowered = {"m": 48, "n": 40, "k": 56, "transpose": "ab", "alpha": -2.0, "beta": 3.0}
    lowered |= {"iters": 1, "warmup": 0, "stationary": "B", "a": "row/c2", "c": "column/c2"}
    cases += [lowered | {"schedule": schedule} for schedule in ("greedy", "cost")]
    if situation == "direct":
        cases.append(lowered | {"transport": "throttled:1,5", "b": "tiles:7x9"})
    return cases


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


@pytest.mark.parametrize("p, situation", RUNS)
def test_every_form_is_exact_on_every_transport(mpirun, dealt, p, situation):
    turn = RUNS.index((p, situation))
    exact(mpirun, p, situation, dealt(universal(p, situation), turn, 7))


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


@pytest.mark.parametrize("p, situation", RUNS[:4])
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

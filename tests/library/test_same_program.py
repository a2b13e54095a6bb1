"""What ``drbench.multiply`` and DTensor plan is what ``drbench run`` runs, and measures."""

import random
from types import SimpleNamespace
from unittest import mock

import pytest

from drbench.library.plan import Multiplication
from drbench.library.spec import TYPES, Specs
from drbench.program.steps import Gemm
from launch.cases.case import Case, bound_on
from launch.cases.machine_models import of_schedule
from partitions import divisors

FORMS = ("row", "column", "block", "tiles:{t}x{u}", "tiles:{u}x{t}", "S(0)", "S(1)", "R")
FORMS += ("row/c{c}", "column/c{c}", "block/c{c}", "tiles:{t}x{u}/c{c}", "S(0),S(1)@{q}x{r}")


def layouts(seed):
    """Ranks, a shape, and three layouts: aligned, misaligned, replicated ones, and placements."""
    rng = random.Random(seed)
    p = rng.choice((1, 2, 3, 4, 6, 8))
    q, c = rng.choice(divisors(p)), rng.choice(divisors(p))
    values = {"t": rng.randint(30, 700), "u": rng.randint(30, 700)}
    texts = [rng.choice(FORMS).format(c=c, q=q, r=p // q, **values) for _ in "abc"]
    return p, [rng.choice((96, 512, 1500, 2048)) for _ in "mnk"], texts


def run_here(p, shape, texts, stationary, in_place, nodes, dtype):
    """The traces of ``drbench run`` with a result in all replicas."""
    options = {"stationary": stationary, "replicate_result": True, "sums": "accumulate"}
    case = Case(*shape, *texts, dtype=dtype, options=options)
    algorithm, problem, options = bound_on(case, nodes)
    settled = algorithm.resolve(problem, in_place, **options)
    machine = of_schedule(None, settled, "auto", dtype)
    return [algorithm.trace(problem, rank, machine, **settled) for rank in range(p)]


def multiply(p, shape, texts, stationary, in_place, nodes, dtype):
    """The traces of the library on ranks with the same memory in reach."""
    runtime = SimpleNamespace(
        in_place=in_place, on_cores=True, nodes=nodes, size=p, plans=set(), comm=None
    )
    specs, (m, n, k) = Specs(p, 0, TYPES), shape
    a, b, c = (specs.of(s, t, dtype) for s, t in zip(((m, k), (k, n), (m, n)), texts))
    with mock.patch("drbench.library.plan.Exchange"):  # it asks the other ranks
        plan = Multiplication(runtime, a, b, c, stationary, False)
    return [plan.trace(rank) for rank in range(p)]


@pytest.mark.parametrize("seed", range(60))
def test_the_program_of_a_layout_is_the_same_in_the_library_as_in_a_run(seed):
    p, shape, texts = layouts(seed)
    rng = random.Random(seed)
    nodes = [rank * 2 // p for rank in range(p)] if seed % 3 == 0 else [0] * p
    in_place = len({*nodes}) == 1 and seed % 2 == 0
    stationary = rng.choice(("auto", "A", "B", "C"))
    how = p, shape, texts, stationary, in_place, nodes, rng.choice(("float32", "float64"))
    for ours, theirs in zip(multiply(*how), run_here(*how)):
        assert list(map(repr, ours.steps)) == list(map(repr, theirs.steps)), how


def test_a_misaligned_product_is_one_local_gemm_in_the_library_too():
    texts = ("tiles:1500x1100@2x1", "tiles:1300x1700@1x2", "block")
    (first, _) = multiply(2, (4096, 4096, 4096), texts, "C", True, [0, 0], "float32")
    assert sum(type(step) is Gemm for step in first.steps) == 1

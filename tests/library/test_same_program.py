"""``drbench.multiply`` and DTensor plan the programs that ``drbench run`` measures."""

import random
from types import SimpleNamespace
from unittest import mock

import pytest

from drbench.launch.cases.case import Case, bind_on_nodes
from drbench.launch.cases.machine_models import find_planning_model
from drbench.library.plan import Multiplication
from drbench.library.spec import TYPES, Specs
from drbench.partitions import divisors
from drbench.program.steps import Gemm

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
    algorithm, problem, options = bind_on_nodes(case, nodes)
    resolved = algorithm.resolve(problem, in_place, **options)
    machine = find_planning_model(None, resolved, "auto", dtype)
    return [algorithm.trace(problem, rank, machine, **resolved) for rank in range(p)]


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


def placed(seed):
    """Ranks, a shape that few ranks divide evenly, and three layouts that DTensor can express."""
    rng = random.Random(f"placements {seed}")
    p = rng.choice((2, 3, 4, 6, 8))
    q = rng.choice(divisors(p))
    mesh = rng.choice(((p,), (q, p // q)))
    words = ("S(0)", "S(1)", "R")
    texts = [[rng.choice(words) for _ in mesh] for _ in "ab"]
    texts.append([rng.choice((*words, "P")) for _ in mesh])
    on = "@" + "x".join(map(str, mesh))
    sizes = [rng.choice((97, 512, 1500, 2048, p - 1)) for _ in "mnk"]
    return p, sizes, [",".join(each) + on for each in texts]


def mm(p, shape, texts, _stationary, in_place, nodes, dtype):
    """The traces of DTensor's mm, as made by the handler of the operation: of tensors on a mesh of
    absent ranks (:func:`absent_ranks`), with unused local tensors."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    from drbench.torch import out, private
    from drbench.torch.dispatch import Installed

    words = {"S(0)": Shard(0), "S(1)": Shard(1), "R": Replicate(), "P": Partial()}
    a, b, c = ([words[x] for x in text.partition("@")[0].split(",")] for text in texts)
    extents = tuple(map(int, texts[0].partition("@")[2].split("x")))
    mesh = DeviceMesh("cpu", torch.arange(p).reshape(extents), _init_backend=False)

    def tensor(rows, cols, placements):
        meta = TensorMeta(torch.Size((rows, cols)), (cols, 1), getattr(torch, dtype))
        spec = DTensorSpec(mesh, tuple(placements), tensor_meta=meta)
        return private.wrapped(torch.empty(0, 0, dtype=meta.dtype), spec)

    (m, n, k), runtime = (
        shape,
        SimpleNamespace(
            in_place=in_place, on_cores=True, nodes=nodes, size=p, plans=set(), comm=None
        ),
    )
    context = SimpleNamespace(
        specs=Specs(p, 0, TYPES),
        multiplication=lambda a, b, c, update: Multiplication(runtime, a, b, c, "auto", update),
    )
    comm, args = SimpleNamespace(size=p), (tensor(m, k, a), tensor(k, n, b))
    installed = Installed(comm, None, "always", {})
    with (
        out(*c),
        mock.patch("drbench.library.plan.Exchange"),
        mock.patch.object(installed, "context", lambda mesh: context),
    ):
        decision = installed.decision(private.MM, args, {})
        assert decision.who == "drbench", decision
        plan = installed.multiplication(decision, args).plan()
    return [plan.trace(rank) for rank in range(p)]


def situation(seed, p):
    """Whether all tiles are read in place, the node of each rank, and an element type."""
    nodes = [rank * 2 // p for rank in range(p)] if seed % 3 == 0 else [0] * p
    in_place = len({*nodes}) == 1 and seed % 2 == 0
    return in_place, nodes, random.Random(f"type {seed}").choice(("float32", "float64"))


def assert_same(made, how):
    """The steps of every rank are those of ``drbench run``."""
    expected = run_here(*how)
    assert len(made) == len(expected)
    for ours, theirs in zip(made, expected):
        assert list(map(repr, ours.steps)) == list(map(repr, theirs.steps)), how


@pytest.mark.parametrize("seed", range(60))
def test_the_program_of_a_layout_is_the_same_in_the_library_as_in_a_run(seed):
    p, shape, texts = layouts(seed)
    stationary = random.Random(seed).choice(("auto", "A", "B", "C"))
    how = p, shape, texts, stationary, *situation(seed, p)
    assert_same(multiply(*how), how)


@pytest.fixture(scope="module")
def absent_ranks():
    """torch's process group of 8 ranks, of which only the first exists."""
    pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield
    dist.destroy_process_group()


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(60))
def test_the_program_of_placements_is_the_same_in_dtensors_mm_as_in_a_run(seed, absent_ranks):
    p, shape, texts = placed(seed)
    how = p, shape, texts, "auto", *situation(seed, p)
    assert_same(mm(*how), how)


def test_a_misaligned_multiplication_is_one_local_gemm_in_the_library_too():
    texts = ("tiles:1500x1100@2x1", "tiles:1300x1700@1x2", "block")
    (first, _) = multiply(2, (4096, 4096, 4096), texts, "C", True, [0, 0], "float32")
    assert sum(type(step) is Gemm for step in first.steps) == 1

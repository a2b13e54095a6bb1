"""Multiply DTensors by drbench: ``dtensor_multiplications.py WHAT ARGUMENTS``."""

import gc
import io
import itertools
import random
import time
from contextlib import nullcontext, redirect_stdout
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed.tensor as torch_tensor
from algorithm_hook import algorithm_hook
from dtensors import TRANSPORT, dtensor, finish, integers, is_right, main, placements, shard
from harness import message_of, restored
from mpi4py import MPI
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)
from torch.distributed.tensor._utils import ExplicitRedistributionContext
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.testing._internal.two_tensor import TwoTensor

import drbench.torch
from drbench.host import huge_pages
from drbench.torch import costs
from drbench.torch.dispatch import installed
from drbench.torch.multiplication import location_of

COMM = MPI.COMM_WORLD


def install(**options):
    options = {"heap": "16M", "when": "always", "transport": TRANSPORT} | options
    return drbench.torch.install(**options)


def multiply(a, b, c=""):
    """``a @ b``, in the requested placements, if any."""
    if not c:
        return a @ b
    with drbench.torch.out(*(placements(c) if isinstance(c, str) else c)):
        return a @ b


def everywhere(right):
    return COMM.allreduce(bool(right), op=MPI.LAND)


#: What a case has unless its table has other choices.
USUAL = {"op": ["mm"], "mode": ["no_grad"], "bias": [""], "of_bias": ["RR"], "factors": [[1, 1]]}
USUAL |= {"c": [""], "dtype": ["float32"], "heap": [False], "turned": [False]}
#: Meshes of some ranks, in any order.
OF_RANKS = {"permuted": [[3, 1], [0, 2]], "three": [0, 2, 3]}
#: The letters of a term of fewer dimensions, by their number.
FEWER = str.maketrans("01tu", "RRRR"), str.maketrans("1u", "0t")


def every(table, count, when):
    """Multiply ``count`` random cases, each with one of the choices of every row of the table, or
    all cases. Operands and results live on for a while and are released in any order."""
    install(heap="1M", when=when)
    table, draw = USUAL | table, random.Random(f"{when} {table}")
    cases = itertools.product(*table.values())
    if count:
        cases = ([draw.choice(each) for each in table.values()] for _ in range(count))
    meshes, held, wrong = {}, [], []
    for number, case in enumerate(dict(zip(table, each)) for each in cases):
        name = case.pop("mesh")
        mesh = meshes[name] = meshes.get(name) or mesh_of(name)
        before = drbench.torch.counts().drbench
        kept, found = multiplied(mesh, number, **case)
        served = drbench.torch.counts().drbench > before
        if mesh.get_coordinate() and not served and when == "always":
            found.append("is not served")
        wrong += [[COMM.rank, name, str(case), each] for each in found]
        held.append(kept)
        if len(held) > 6:
            held.pop(draw.randrange(6))
    counts, held, kept = drbench.torch.counts(), None, None
    stock = sum(map(list, COMM.allgather(counts.stock)), [])
    wrong = sum(COMM.allgather(wrong), [])[:10]
    return {"drbench": counts.drbench, "stock": stock, "wrong": wrong, "left": finish()}


def mesh_of(name):
    """By its extents, as 2x2, or a name; ``dp`` and ``tp`` are this rank's sub-meshes of 2x2."""
    if name in OF_RANKS:
        return DeviceMesh("cpu", OF_RANKS[name])
    if name in ("dp", "tp"):
        return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))[name]
    return init_device_mesh("cpu", tuple(map(int, name.split("x"))))


def multiplied(mesh, number, op, shape, a, b, c, **how):
    """The tensors of one multiplication, and which of its result and gradients are wrong: they are
    compared with those of whole matrices in one process."""
    m, k, n = shape
    shapes = [{"m": m, "n": n, "1": 1}[each] for each in how["bias"]], (m, k), (k, n)
    mode, kind = getattr(torch, how["mode"]), getattr(torch, how["dtype"])
    wholes, parts = [], []
    for x, (shape, letters) in enumerate(zip(shapes, (how["of_bias"], a, b))):
        shape = shape[::-1] if x and how["turned"] else shape
        letters = letters.translate(FEWER[len(shape)]) if len(shape) < 2 else letters
        wholes.append(integers(shape, 3 * number + x, kind))
        placed = placements(letters[: mesh.ndim])
        parts.append(dtensor(wholes[x], mesh, placed, how["heap"] and x > 0, x))
    alpha, beta = how["factors"]
    wanted, results = placements(c[: mesh.ndim]), []
    for leaves in parts, wholes:
        start, x, y = (each.requires_grad_() for each in leaves)
        if how["turned"]:
            x, y = x.t(), y.t()
        z = y.t()  # torch itself makes no view of it in inference mode
        with mode(), drbench.torch.out(*wanted) if c else nullcontext():
            if op == "addmm":
                got = torch.addmm(start, x, y, alpha=alpha, beta=beta)
            elif op == "mm":
                got = x @ y
            else:
                got = torch.nn.functional.linear(x, z, start if start.ndim == 1 else None)
            if how["mode"] == "enable_grad":
                whole = got.full_tensor() if leaves is parts else got
        if how["mode"] == "enable_grad":
            try:
                total = (whole * integers((m, n), number)).sum()
                (total.real if kind.is_complex else total).backward()
            except RuntimeError as error:  # torch cannot reshape some gradients of a bias
                assert "failed for aten.view" in str(error)
        results.append([got.detach(), *(each.grad for each in leaves)])
    found = results[0]
    wrong = ["placements"] if c and found[0].placements != wanted else []
    if mesh.get_coordinate() is None:
        return (parts, found), wrong
    for name, one, right in zip(("C", "bias", "A", "B"), *results):
        if one is not None and right is not None and not is_right(one, right, mesh):
            wrong.append(name)
    return (parts, found), wrong


def kind_of(call):
    """The class of the error that a call ends with."""
    try:
        call()
    except Exception as error:
        return type(error).__name__


def torchs():
    """What torch does itself, or drbench refuses, on all ranks alike; each claim by its name."""
    install(when="auto")
    line = init_device_mesh("cpu", (COMM.size,))
    A, found = integers((16, 16), 1), {}
    a, whole = dtensor(A, line, (Shard(0),)), dtensor(A, line, (Replicate(),))

    def took(call):
        """Whether drbench multiplied, and the result."""
        before = drbench.torch.counts().drbench
        made = call()
        return drbench.torch.counts().drbench > before, made

    def square():
        return took(lambda: a @ a)

    # nothing moves: a slice, a sum of which the first rank has all
    bias = dtensor(A[0], line, (Replicate(),))
    s0, s1 = dtensor(A, line, (Shard(0),)), dtensor(A, line, (Shard(1),))
    found["slices"] = not took(lambda: whole @ s0)[0]
    found["bias"] = not took(lambda: torch.addmm(bias, s1, s0))[0]
    # a square bias by columns is no part of C by rows
    with drbench.torch.out(Shard(0)):
        mine, got = took(lambda: torch.addmm(s1, a, a))
    found["bias by columns"] = mine and is_right(got, A + A @ A, line)
    # a large pending sum would have to be reduced, where torch gathers a small matrix
    large, small = integers((64, 16), 2), integers((16, 1), 3)
    pending = dtensor(large, line, (Partial(),)), dtensor(small, line, (Shard(0),))
    with restored((costs, "_GLOO_S")):
        costs._GLOO_S = 0.0  # else small matrices are all cheaper by drbench
        mine, got = took(lambda: pending[0] @ pending[1])
    found["dearer"] = not mine and is_right(got, large @ small, line)
    found["why"] = "predicted to take longer" in str(drbench.torch.counts().stock)
    found["cheaper"] = square()[0]
    # other local tensors
    kinds = [torch.empty(4, 16, device="meta"), TwoTensor(torch.ones(4, 16), torch.ones(4, 16))]
    for name, local in zip(("meta", "subclass"), kinds):
        other = DTensor.from_local(local, line, [Shard(0)], run_check=False)
        for placed in ("", "1"):
            made = multiply(other, other, placed)
            same = type(made.to_local()) is type(local) and made.device == local.device
            found[name + placed] = same and placed in ("", str(made.placements[0].dim))
    # other types and operations, also where a placement is requested
    for kind in (torch.float16, torch.int64):
        got = multiply(a.to(kind), a.to(kind).t(), "1")
        right = got.placements == (Shard(1),) and got.dtype == kind
        found[str(kind)] = right and is_right(got.float(), A @ A.t(), line)
    whole_batch = integers((4, 6, 6), 5)
    batch = dtensor(whole_batch, line, (Shard(0),))
    found["bmm"] = is_right(torch.bmm(batch, batch), torch.bmm(whole_batch, whole_batch), line)
    compiled = torch.compile(lambda x: torch.relu(x @ x.t()) @ x, backend="aot_eager")
    found["compile"] = is_right(compiled(a), torch.relu(A @ A.t()) @ A, line)
    for why in (
        "float16 is multiplied by torch alone",
        "int64 is multiplied by torch alone",
        "batched multiplications are done by torch alone",
        "torch.compile traces the program",
    ):
        found[why] = why in drbench.torch.counts().stock
    narrow = a.to(torch.bfloat16).detach().requires_grad_()
    mine, got = took(lambda: multiply(narrow, narrow.detach().t(), "1"))
    got.sum().backward()
    ones = torch.ones(16, 16, dtype=torch.bfloat16)
    found["bfloat16"] = mine and is_right(narrow.grad, ones @ A.to(torch.bfloat16), line)
    # the program observes what torch moves, on all ranks or on one
    for name, here in (("counted", True), ("counted on rank 0", COMM.rank == 0)):
        with CommDebugMode() if here else nullcontext() as seen:
            mine, got = square()
        found[name] = not mine and (not here or seen.get_total_counts() == 1)
        with drbench.torch.out(Shard(0)), CommDebugMode() if here else nullcontext():
            mine, got = took(lambda: torch.addmm(s1, a, a))  # the bias moves first
        found[f"{name}, bias"] = not mine and is_right(got, A + A @ A, line)
    with ExplicitRedistributionContext():
        found["explicit"] = kind_of(square) == "RuntimeError"
        with ExplicitRedistributionContext(enable=False):
            found["implicit"] = square()[0]
    found["observed no more"] = square()[0]
    # shapes that differ between ranks
    rows = DTensor.from_local(torch.ones(2 - COMM.rank % 2, 6), line, [Shard(0)], run_check=False)
    none = DTensor.from_local(torch.ones(COMM.rank % 2, 6), line, [Shard(0)], run_check=False)
    weight = dtensor(integers((6, 8), 4), line, (Shard(1),))
    for name, each in (("rows", rows), ("none", none)):
        kind, text = message_of(lambda: multiply(each, weight, "0"))
        found[name] = (kind, text[:6]) == ("UsageError", "ranks ")
    for placed in ("", "0"):  # hidden features that the ranks do not divide
        found["inner" + placed] = kind_of(lambda: multiply(rows, a, placed)) == "RuntimeError"
    empty = multiply(dtensor(A[:0], line, (Shard(0),)), s1, "0")
    found["empty"] = tuple(empty.shape) == (0, 16) and empty.placements == (Shard(0),)
    sums = multiply(dtensor(A[:, :0], line, (Shard(1),)), dtensor(A[:0], line, (Shard(1),)), "R")
    found["no k"] = is_right(sums, torch.zeros(16, 16), line)
    reverse = DeviceMesh("cpu", list(range(COMM.size))[::-1])
    mixed = dtensor(A, reverse, (Shard(0),))
    found["meshes"] = kind_of(lambda: multiply(a, mixed, "0")) == "RuntimeError"
    with torch.inference_mode():
        mine, got = square()
        found["inference"] = mine and got.to_local().is_inference()
        mine, got = took(lambda: torch.nn.functional.linear(a, a))
        found["inference, linear"] = mine and is_right(got, A @ A.t(), line)
    # memory that another tensor uses
    layer = torch.nn.Linear(16, 16, bias=False)
    layer.weight = torch.nn.Parameter(dtensor(A, line, (Shard(0),)))
    view = layer.weight.to_local().detach()
    found["view"] = kind_of(lambda: drbench.torch.adopt(layer)) == "UsageError"
    del view
    local = layer.weight._local_tensor
    drbench.torch.adopt(layer)
    found["followed"] = layer.weight._local_tensor is local and is_right(layer.weight, A, line)
    model = fully_shard(torch.nn.Linear(16, 16), mesh=line)
    found["fully_shard"] = kind_of(lambda: drbench.torch.adopt(model)) == "UsageError"
    # all memory of the node is used by others
    with restored((huge_pages, "shared_memory_free")):
        huge_pages.shared_memory_free = lambda: 0
        held = [a @ a for _ in range(40)]
        found["full"] = all(is_right(each, A @ A, line) for each in held[::8])
        found["declined"] = "is full" in str(drbench.torch.counts().stock)
    a = whole = s0 = s1 = bias = pending = got = held = rows = none = weight = empty = sums = None
    layer = model = mixed = local = each = made = other = batch = narrow = None
    return {name: everywhere(right) for name, right in found.items()} | {"left": finish()}


def rounding(mesh_shape):
    """The largest relative error of bfloat16 multiplications of positive numbers: sums rounded at
    each element would stop growing."""
    install()
    mesh, worst = init_device_mesh("cpu", tuple(mesh_shape)), 0.0
    generator = torch.Generator().manual_seed(1)
    A, B = (
        (0.5 + torch.rand(shape, generator=generator)).to(torch.bfloat16)
        for shape in ((24, 1024), (1024, 16))
    )
    C, spare = A.double() @ B.double(), "R" * (mesh.ndim - 1)
    for a, b in itertools.product("01RP", repeat=2):
        x, y = (
            dtensor(whole, mesh, placements(each + spare)) if each != "P" else halves(whole, mesh)
            for whole, each in ((A, a), (B, b))
        )
        got = multiply(x, y, "R" * mesh.ndim).to_local().double()
        worst = max(worst, float(((got - C) / C).abs().max()))
    count = drbench.torch.counts().drbench
    x = y = got = None
    return {"error": COMM.allreduce(worst, op=MPI.MAX), "drbench": count, "left": finish()}


def halves(whole, mesh):
    """A matrix as a sum of equal terms, exactly."""
    return DTensor.from_local(
        whole / mesh.shape[0],
        mesh,
        [Partial(), *[Replicate()] * (mesh.ndim - 1)],
        run_check=False,
    )


def trouble():
    """One rank cannot multiply: all leave it to torch; mistakes are reported in one line."""
    before = message_of(lambda: drbench.torch.counts())
    install(heap="256K")
    mesh, wrong, rank = init_device_mesh("cpu", (COMM.size,)), [], COMM.rank
    A, B = integers((32, 32), 1), integers((32, 32), 2)
    a, b = (dtensor(each, mesh, (Shard(0),)) for each in (A, B))
    context = installed().context(mesh)
    hold = (
        context.heap.array((1, context.heap._space.largest - 1024), np.dtype("u1"))
        if rank
        else None
    )
    for placed in "01R":
        if not is_right(multiply(a, b, placed), A @ B, mesh):
            wrong.append("full")
        p = dtensor(A, mesh, (Partial(),))
        if not is_right(p @ b, A @ B, mesh):
            wrong.append("full sum")
    full = drbench.torch.counts()
    del hold
    gc.collect()
    if not is_right(a @ b, A @ B, mesh):
        wrong.append("free again")
    again = drbench.torch.counts()
    # a local tensor that does not match its placements
    odd = DTensor.from_local(
        torch.ones(16 + 2 * rank, 32),
        mesh,
        [Shard(0)],
        run_check=False,
        shape=(32, 32),
        stride=(32, 1),
    )
    whole = dtensor(B, mesh, (Replicate(),))
    local = (odd @ whole).to_local()
    if not torch.equal(local, torch.ones(16 + 2 * rank, 32) @ B):
        wrong.append("odd")
    last = drbench.torch.counts()
    large = torch.nn.Linear(512, 512, bias=False)
    large.weight = torch.nn.Parameter(dtensor(torch.zeros(512, 512), mesh, (Shard(0),)))
    text = {
        "before": before,
        "twice": message_of(install),
        "when": message_of(lambda: drbench.torch.install(when="alway")),
        "long": message_of(lambda: multiply(a, b, (Shard(0), Shard(0)))),
        "third": message_of(lambda: multiply(a, b, (Shard(2),))),
        "explain": message_of(lambda: drbench.torch.explain(a, B)),
        "type": message_of(lambda: drbench.torch.empty((4, 4), mesh, [Shard(0)], torch.int32)),
        "placements": message_of(lambda: drbench.torch.empty((4, 4), mesh, [])),
        "sum": message_of(lambda: drbench.torch.empty((4, 4), mesh, [Partial("max")])),
        "adopt": message_of(lambda: drbench.torch.adopt(large)),
    }
    began = time.monotonic()
    order = message_of(lambda: (a @ b) if rank else (b @ a.t()))
    factors = message_of(lambda: torch.addmm(a, a, b, alpha=1 + rank, beta=0))
    seconds = time.monotonic() - began
    right = is_right(a @ b, A @ B, mesh)
    heard = COMM.gather((text, order, factors, seconds, right, wrong))
    a = b = p = odd = whole = local = large = None
    left = finish()
    return {
        "heard": heard,
        "declined": [full.declined, again.declined, last.declined],
        "drbench": [full.drbench, again.drbench, last.drbench],
        "stock": last.stock,
        "left": left,
        "after": message_of(lambda: drbench.torch.uninstall()),
    }


def text():
    """The answers of explain, and whether the bytes moved equal them."""
    install(when="auto")
    mesh = init_device_mesh("cpu", (COMM.size,))
    A, B = integers((8, 12), 1), integers((12, 16), 2)
    found = {}
    for name, x, y, placed in (
        ("gather", "0", "0", ""),
        ("local", "0", "R", ""),
        ("sum", "1", "0", ""),
        ("scatter", "1", "0", "0"),
        ("transposed", "0", "R", "1"),
        ("partial", "P", "0", "0"),
    ):
        a, b = dtensor(A, mesh, placements(x)), dtensor(B, mesh, placements(y))
        before = drbench.torch.counts()
        with drbench.torch.out(*placements(placed)) if placed else nullcontext():
            explained, got = drbench.torch.explain(a, b), a @ b
        after = drbench.torch.counts()
        who = "drbench" if after.drbench > before.drbench else "stock"
        right = is_right(got, A @ B, mesh) and explained.who == who
        right = right and got.placements == explained.placements
        found[name] = [
            everywhere(right),
            explained.who,
            explained.why,
            explained.moved_bytes,
            list(explained.stock_moves),
            explained.stock_bytes,
            str(explained).splitlines()[0],
        ]
    a = b = got = None
    return found | {"left": finish()}


def outliving():
    """Tensors outlive the contexts; the handlers of others come back."""
    table = drbench.torch.private.handlers()
    before = dict(table)
    right = []
    for _ in range(2):
        install()
        mesh = init_device_mesh("cpu", (COMM.size,))
        A = integers((12, 12), 3)
        a = dtensor(A, mesh, (Shard(0),), heap=True)
        kept = a @ a
        drbench.torch.uninstall()
        right.append(table == before)
        right.append(is_right(kept, A @ A, mesh) and is_right(a, A, mesh))
        right.append(is_right(kept @ kept, A @ A @ A @ A, mesh))  # stock
    return everywhere(all(right))


def hooked(table, count):
    """Random cases where torch has a hook for algorithms, and what the hook does."""
    with algorithm_hook() as hook:
        other = hook.register_op_algorithm_selector(drbench.torch.private.MM)(lambda *asked: asked)
        first, cases = every(table, count, "auto"), len(hook.answered)
        mesh, A = init_device_mesh("cpu", (COMM.size,)), integers((16, 16), 1)
        a, right = dtensor(A, mesh, (Shard(0),)), {}
        by_torch = a @ a  # the hook still asks, and torch multiplies
        right["left"] = len(hook.answered) == cases and is_right(by_torch, A @ A, mesh)
        install(when="auto")
        by_hook = a @ a
        right["hook"] = is_right(by_hook, A @ A, mesh) and len(hook.answered) == cases + 1
        with drbench.torch.out(Shard(1)), drbench.torch.out(Shard(0)):
            placed = a @ a
        right["out"] = placed.placements == (Shard(0),) and is_right(placed, A @ A, mesh)
        right["out by a handler"] = len(hook.answered) == cases + 1
        right["both"] = drbench.torch.counts().drbench == 2
        with drbench.torch.out(Shard(0)), CommDebugMode():
            observed = a @ a
        right["declined"] = is_right(observed, A @ A, mesh) and len(hook.answered) == cases + 1
        right["no handler"] = drbench.torch.private.MM not in drbench.torch.private.handlers()
        by_torch = by_hook = placed = observed = None
        left = finish()
        install(when="always")  # also where torch redistributes nothing, and asks no hook
        whole = dtensor(A, mesh, (Replicate(),))
        a @ whole
        right["always"] = drbench.torch.counts().drbench == 1 and len(hook.answered) == cases + 1
        gpu = SimpleNamespace(args_spec=[SimpleNamespace(mesh=SimpleNamespace(device_type="cuda"))])
        select = hook._op_algorithm_selectors[drbench.torch.private.MM]
        right["others"] = select(gpu, "strategy") == (gpu, "strategy") and select is not other
        left += finish()
    a = whole = None
    right["answered"] = cases > count // 4
    return first | {"right": {name: everywhere(each) for name, each in right.items()}, "more": left}


def symmetric():
    """Operands that were copied by a multiplication, by how they were made."""
    install()
    mesh, copied, right = init_device_mesh("cpu", (COMM.size,)), {}, {}
    whole, batch = integers((7, 9), 1), integers((4, 3, 9), 2)
    make, from_local = DTensor.__new__, DTensor.from_local

    def count(name, made, factor=None):
        before = drbench.torch.counts()
        factor = made().t() if factor is None else factor
        a = made()
        result = torch.nn.functional.linear(a, factor.t())
        after = drbench.torch.counts()
        copied[name] = [after.drbench - before.drbench, after.copied - before.copied]
        expected = a.full_tensor() @ factor.full_tensor()
        right[name] = torch.equal(result.full_tensor(), expected)

    def pairs():
        for letter in "01RP":
            for source in 0, None:
                placed = placements(letter)
                made = lambda: distribute_tensor(whole, mesh, placed, src_data_rank=source)
                yield f"{letter}{'' if source is None else source}", made
        yield "rand", lambda: torch_tensor.zeros(8, 6, device_mesh=mesh, placements=[Shard(0)])

    for name, made in pairs():
        count(f"{name}, outside", made)
        with drbench.torch.symmetric():
            kept = made(), made().t()
            with drbench.torch.symmetric():
                inner = made()
            count(name, made)
        count(f"{name}, later", lambda: kept[0], kept[1])
        right[f"{name}, inner"] = location(inner) and location(kept[0])
    with drbench.torch.symmetric():
        weight = distribute_tensor(whole.t().contiguous(), mesh, [Shard(1)])
        count("3-D", lambda: distribute_tensor(batch, mesh, [Shard(0)]), weight)
        local = shard(whole, mesh, (Shard(0),))
        mine = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, **like(whole))
        right["from_local"] = mine._local_tensor.data_ptr() == local.data_ptr()
        right["after from_local"] = location(distribute_tensor(whole, mesh, [Shard(0)]))
        for other in (torch.ones(3), torch.ones(4, 4, dtype=torch.int64)):
            same = distribute_tensor(other, mesh, [Replicate()])
            right[str(other.dtype)] = torch.equal(same.to_local(), other)
        leaf = distribute_tensor(whole.clone().requires_grad_(), mesh, [Shard(0)])
        (leaf @ leaf.detach().t()).sum().backward()
        ones = torch.ones(len(whole), len(whole))
        right["gradient"] = leaf.is_leaf and torch.equal(leaf.grad.full_tensor(), ones @ whole)
        layer = torch.nn.Linear(8, 8)
        parallelize_module(layer, mesh, ColwiseParallel())
        right["module"] = location(layer.weight)
        full = kind_of(lambda: distribute_tensor(torch.ones(3000, 3000), mesh, [Replicate()]))
    right["full"] = full == "OutOfMemory"
    right["restored"] = DTensor.__new__ is make and DTensor.from_local is from_local
    kept = inner = weight = mine = same = leaf = layer = None
    right = {name: everywhere(each) for name, each in right.items()}
    return {"copied": COMM.allgather(copied), "right": right, "left": finish()}


def location(tensor):
    """Whether a local tensor is in the heap."""
    heap = installed().context(tensor.device_mesh)
    return location_of(tensor._local_tensor.detach(), heap) is not None


def like(whole):
    return {"shape": whole.shape, "stride": whole.stride()}


def chosen(layouts, size, when):
    """Who multiplies each triple of placements, why, and the seconds that are predicted."""
    state, found = install(when=when, heap="64M"), []
    mesh = init_device_mesh("cpu", (COMM.size,))
    for a, b, c in layouts:
        x, y = (drbench.torch.empty((size, size), mesh, placements(each)) for each in (a, b))
        with drbench.torch.out(*placements(c)) if c else nullcontext():
            explained = drbench.torch.explain(x, y)
            if size < 100:
                x @ y
        found.append(
            [explained.who, explained.why, explained.seconds, "predicted" in str(explained)]
        )
    counts, x, y = drbench.torch.counts(), None, None
    assert state.when == when
    return COMM.allgather(found), [counts.drbench, counts.stock], finish()


def gradients():
    """The placements of gradients whose forward pass was in ``out``: of torch, of drbench, and
    where the backward pass is, too."""
    found = []
    for when, inside in (("never", False), ("always", False), ("always", True)):
        install(when=when)
        mesh = init_device_mesh("cpu", (COMM.size,))
        a, b = (dtensor(integers((8, 8), x), mesh, (Shard(0),)).requires_grad_() for x in (1, 2))
        with drbench.torch.out(Shard(1)):
            total = (a @ b).square().sum()
            if inside:
                with drbench.torch.out(Replicate()):
                    total.backward()
        if not inside:
            total.backward()
        found.append([str(each.grad.placements[0]) for each in (a, b)])
        a = b = total = None
        assert finish() == 0
    return found


def page(block):
    """What the code of a page prints, on all ranks."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(block, {})
    drbench.torch.uninstall()
    return "".join(COMM.allgather(printed.getvalue()))


if __name__ == "__main__":
    main(
        *(every, torchs, rounding, trouble, text, outliving, page),
        *(hooked, symmetric, chosen, gradients),
    )

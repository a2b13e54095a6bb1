"""Multiply DTensors by drbench: ``dtensor_multiplications.py WHAT [ARGUMENTS]``."""

import gc
import itertools
import random
import time
from contextlib import nullcontext

import numpy as np
import torch
from dtensors import TRANSPORT, dtensor, integers, is_right, main, placements
from harness import message_of, restored
from mpi4py import MPI
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh
from torch.distributed.tensor._utils import ExplicitRedistributionContext
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.two_tensor import TwoTensor

import drbench.torch
from drbench.host import huge_pages
from drbench.torch.dispatch import installed

COMM = MPI.COMM_WORLD


def install(**options):
    options = {"heap": "16M", "when": "always", "transport": TRANSPORT} | options
    return drbench.torch.install(**options)


def finish():
    """Bytes of the heaps that are still in use, over all ranks; afterwards torch is as it was."""
    gc.collect()
    contexts = installed()._contexts.values()
    left = sum(context.heap.taken for context in contexts if context is not None)
    drbench.torch.uninstall()
    return COMM.allreduce(left)


def multiply(a, b, c=""):
    """``a @ b``, in the requested placements, if any."""
    if not c:
        return a @ b
    with drbench.torch.out(*(placements(c) if isinstance(c, str) else c)):
        return a @ b


def everywhere(right):
    return COMM.allreduce(bool(right), op=MPI.LAND)


def compare(mesh, whole, triples, made):
    """The triples that are wrong: placements of A, B and C ("" for stock's) by their letters;
    ``made(x, letters)`` is an operand."""
    wrong = []
    for a, b, c in triples:
        got = multiply(made(0, a), made(1, b), c)
        right = not c or got.placements == placements(c)
        if not (is_right(got, whole, mesh) and right):
            wrong.append([str(mesh), a, b, c, str(got.placements)])
    return wrong


def every(mesh_shape, letters, shapes, heaps, outputs, sample, dtype):
    """Multiply a sample of operand placements with all outputs ("" for stock's)."""
    install()
    mesh, kind = init_device_mesh("cpu", tuple(mesh_shape)), getattr(torch, dtype)
    options = ["".join(each) for each in itertools.product(letters, repeat=len(mesh_shape))]
    outs = ["", *options] if outputs else [""]
    wrong, cases = [], 0
    for m, k, n in shapes:
        A, B = integers((m, k), m, kind), integers((k, n), n + 1, kind)
        for heap in heaps:
            made = {
                (x, each): dtensor(whole, mesh, placements(each), heap, x + 1)
                for x, whole in enumerate((A, B))
                for each in options
            }
            triples = [*itertools.product(options, options, outs)]
            triples = random.Random(m).sample(triples, min(sample, len(triples)))
            cases += len(triples)
            found = compare(mesh, A @ B, triples, lambda *which: made[which])
            wrong += [[m, k, n, heap, *each] for each in found]
            made = None
    counts = drbench.torch.counts()
    wrong = sum(COMM.allgather(wrong), [])
    return {
        "cases": cases - counts.drbench,
        "wrong": wrong[:10],
        "stock": counts.stock,
        "left": finish(),
    }


def fuzzed(seed, count):
    """Random addmm, mm and linear, forward and backward or in modes without gradients, in random
    placements of all operands and of the result, compared with the whole matrices in one
    process."""
    wrong, done = [], []
    modes = torch.enable_grad, torch.enable_grad, torch.no_grad, torch.inference_mode
    for when in ("auto", "always"):
        draw = random.Random(f"{seed} {when}")
        install(when=when, heap="32M")
        meshes = [init_device_mesh("cpu", shape) for shape in ((4,), (2, 2))]
        for number in range(count):
            mesh = draw.choice(meshes)
            m, k, n = (draw.choice((1, 3, 4, 7, 8, 12)) for _ in range(3))
            shapes = draw.choice([(m, n), (m, n), (n,), (1, n), (m, 1), (1,), ()]), (m, k), (k, n)
            given = [random_placements(draw, mesh, len(shape)) for shape in (*shapes, (m, n))]
            given[3] = draw.choice((None, given[3]))
            name, mode = draw.choice(("addmm", "addmm", "mm", "linear")), draw.choice(modes)
            factors = {"alpha": draw.choice((1, 2, -1, 0)), "beta": draw.choice((1, 3, -1, 0))}
            wholes = [integers(shape, 10 * number + x).double() for x, shape in enumerate(shapes)]
            made = [
                dtensor(whole, mesh, put, False, x)
                for x, (whole, put) in enumerate(zip(wholes, given))
            ]
            weights = integers((m, n), number).double()
            results = []
            for bias, a, b in (made, wholes):
                for each in (bias, a, b):
                    each.requires_grad_()
                turned = b.t()  # torch itself makes no view of it in inference mode
                placed = drbench.torch.out(*given[3]) if given[3] else nullcontext()
                before = drbench.torch.counts().drbench
                with mode(), placed:
                    if name == "addmm":
                        got = torch.addmm(bias, a, b, **factors)
                    elif name == "mm":
                        got = a @ b
                    else:
                        got = torch.nn.functional.linear(
                            a, turned, bias if bias.ndim == 1 else None
                        )
                    whole = got.full_tensor() if isinstance(got, DTensor) else got
                served = drbench.torch.counts().drbench > before
                if isinstance(got, DTensor) and when == "always" and not served:
                    wrong.append([name, mode.__name__, "is not served"])
                try:
                    (whole * weights).sum().backward() if mode is torch.enable_grad else None
                except RuntimeError as error:  # torch cannot reshape some gradients of a bias
                    assert "failed for aten.view" in str(error)
                results.append([whole.detach(), *(each.grad for each in (bias, a, b))])
            for what, found, right in zip(("C", "bias", "A", "B"), *results):
                found = found.full_tensor() if isinstance(found, DTensor) else found
                if right is None or found is None:
                    continue
                if not torch.equal(found, right):
                    of = (
                        when,
                        name,
                        mode.__name__,
                        what,
                        str(mesh.shape),
                        shapes,
                        str(given),
                        factors,
                    )
                    wrong.append(of)
        counts = drbench.torch.counts()
        done.append(counts.drbench)
        made = got = results = bias = a = b = turned = whole = found = each = None
        left = finish()
    wrong = sum(COMM.allgather(wrong), [])[:10]
    return {"wrong": wrong, "drbench": done, "stock": counts.stock, "left": left}


def random_placements(draw, mesh, ndim):
    """Often a pending sum; never two _StridedShard, which torch itself redistributes wrongly."""
    kinds = ("", "00t", "0011tu")[ndim] + "RPPP"
    while True:
        letters = "".join(draw.choice(kinds) for _ in mesh.shape)
        if set(letters) <= set("RP01") or set(letters) & set("RP"):
            return placements(letters)


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
    # a large pending sum would have to be reduced, where torch gathers a small matrix
    large, small = integers((64, 16), 2), integers((16, 1), 3)
    pending = dtensor(large, line, (Partial(),)), dtensor(small, line, (Shard(0),))
    mine, got = took(lambda: pending[0] @ pending[1])
    found["dearer"] = not mine and is_right(got, large @ small, line)
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
    reverse = torch.distributed.device_mesh.DeviceMesh("cpu", list(range(COMM.size))[::-1])
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


def meshes():
    """Sub-meshes, a mesh whose ranks are in another order, ranks that are on no mesh."""
    install()
    wrong, whole = [], init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    A, B = integers((5, 7), 1), integers((7, 6), 2)
    permuted = torch.distributed.device_mesh.DeviceMesh("cpu", [[3, 1], [0, 2]])
    of_permuted = ("01", "10", "10"), ("0P", "1R", "R0"), ("tR", "0t", "11")
    for mesh, triples in (
        *((whole[name], itertools.product("01P", repeat=3)) for name in ("dp", "tp")),
        (permuted, of_permuted),
    ):
        wrong += compare(
            mesh, A @ B, triples, lambda x, each: dtensor((A, B)[x], mesh, placements(each))
        )
    three = torch.distributed.device_mesh.DeviceMesh("cpu", [0, 2, 3])
    if COMM.rank == 1:
        nothing = torch.empty(0)
        x, y = (
            DTensor.from_local(
                nothing, three, [Shard(0)], run_check=False, shape=z.shape, stride=z.stride()
            )
            for z in (A, B)
        )
    else:
        x, y = (dtensor(z, three, (Shard(0),)) for z in (A, B))
    got = multiply(x, y, "1")
    if got.shape != (5, 6) or got.placements != (Shard(1),):
        wrong.append("three")
    if COMM.rank != 1 and not is_right(got, A @ B, three):
        wrong.append("three")
    counts = drbench.torch.counts()
    x = y = got = None
    return {
        "wrong": sum(COMM.allgather(wrong), []),
        "drbench": COMM.gather(counts.drbench),
        "stock": COMM.gather(counts.stock),
        "left": finish(),
    }


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


def churn(steps, seed):
    """Random allocations, releases and multiplications; no memory is lost."""
    install(heap="1M")
    mesh, rng, held, wrong = init_device_mesh("cpu", (COMM.size,)), random.Random(seed), [], 0
    for number in range(steps):
        what = rng.random()
        if what < 0.4 or len(held) < 2:
            n, placed = rng.randint(1, 24), placements(rng.choice("01RP"))
            whole = integers((n, n), number)
            held.append((whole, dtensor(whole, mesh, placed, rng.random() < 0.5, seed=number)))
        elif what < 0.6:
            held.pop(rng.randrange(len(held)))
        else:
            (A, a), (B, b) = rng.choice(held), rng.choice(held)
            if A.shape == B.shape:
                turn = lambda x, y: (x, y.t()) if number % 2 else (x.t(), y)
                got = multiply(*turn(a, b), rng.choice("01RP"))
                wrong += not is_right(got, multiply(*turn(A, B)), mesh)
        held = held[-12:]
    held = a = b = got = None
    return {"wrong": COMM.allreduce(wrong), "left": finish()}


if __name__ == "__main__":
    main(
        {
            each.__name__: each
            for each in (every, fuzzed, torchs, rounding, meshes, trouble, text, outliving, churn)
        }
    )

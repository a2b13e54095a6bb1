"""drbench as a library, by name: ``library.py [--device=HOW] WHAT [ARGUMENTS]`` answers the
result.

HOW is ``threads``, for worker threads instead of a device, or the path of the kernels compiled
for the host, for a fake of CuPy.
"""

import gc
import json
import sys
import threading
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
from fake_cuda import shared_cupy
from harness import SITUATION, answer, message_of, ranks
from host_device import HostDevice
from mpi4py import MPI

import drbench
from drbench.arrays import numpy_type
from drbench.errors import DrbenchError, UnsupportedError
from drbench.host import executor_base
from drbench.library.plan import Multiplication

TRANSPORT = "rma" if SITUATION == "rma" else "auto"
HOW = sys.argv.pop(1).partition("=")[2] if sys.argv[1].startswith("--device=") else ""
OPENED: list[HostDevice] = []
#: A count of the fake's memory and handles in use.
FAKE = shared_cupy(HOW) if "/" in HOW else nullcontext(lambda: 0)
KINDS = np.dtype("f4"), np.dtype("f8")
if not HOW:
    KINDS += numpy_type("bfloat16"), np.dtype("c8"), np.dtype("c16")


def opened(comm, heap="4M", **options):
    if "/" in HOW:
        options["device"] = "gpu"
    elif HOW:
        options["device"] = HostDevice(comm.rank, 5e-5)
        OPENED.append(options["device"])
    return drbench.init(comm, heap, transport=TRANSPORT, **options)


def host(array):
    """The elements of a local array, or of a whole matrix."""
    return array.get() if hasattr(array, "get") else array


def address(array):
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def whole(rng, shape, dtype):
    parts = rng.integers(-3, 4, (2, *shape))
    is_complex = np.dtype(dtype).kind == "c"
    return (parts[0] + 1j * parts[1] if is_complex else parts[0]).astype(dtype)


def placed(ctx, array, text, how):
    """A matrix of an array: unchanged, transposed, as columns of a wider array, outside the heap by
    columns, or mixed: so on every second rank, and in the heap on the others."""
    if how == "transposed":
        return ctx.from_global(array.T.copy(), ctx.specs.of(array.shape, text, array.dtype).T).T
    made = ctx.from_global(array, text)
    if how == "wide":
        wide = ctx.heap.array((made.local.shape[0], made.local.shape[1] + 3), array.dtype)
        part = wide[:, 2 : 2 + made.local.shape[1]]
        part[...] = made.local
        found = ctx.wrap(part, text, array.shape)
        assert not part.size or address(found.local) == address(part)
        return found
    if how == "copied" or how == "mixed" and ctx.rank % 2:
        own = made.local.copy(order="F")  # stays by columns: to read it is to read columns
        found = ctx.wrap(own, text, array.shape)
        assert not own.size or address(found.local) == address(own)
        return found
    return ctx.wrap(made.local, text, array.shape) if how == "mixed" else made


def exact(comm, layouts, seed, count):
    """Random multiplications and redistributions of matrices and of parts of matrices, each stored
    in a way of its own: the wrong ones, the memory left, and whether a sum was refused."""
    rng, wrong, ctx, refused = np.random.default_rng(seed), [], opened(comm), 0
    hows = ["as is", "transposed", "wide", "copied", "mixed"]
    for number in range(count):
        m, n, k = (int(x) for x in rng.integers(0, 14, 3))
        room = int(rng.integers(2)) * rng.integers(0, 5, (3, 2, 2))  # around each part
        texts, how = ([str(x) for x in rng.choice(each, 3)] for each in (layouts, hows))
        dtype, stationary = KINDS[number // 3 % len(KINDS)], str(rng.choice([*"ABC", "auto"]))
        alpha, beta = (1, 0) if number % 3 else map(int, rng.integers(-2, 3, 2))
        if dtype.kind == "c" and not number % 3:
            alpha, beta = alpha * (1 - 1j), beta * (2 + 1j)
        arrays, held, parts = [], [], []
        for x, shape in enumerate(((m, k), (k, n), (m, n))):
            arrays.append(whole(rng, shape + room[x].sum(0), dtype))
            held.append(placed(ctx, arrays[x], texts[x], how[x]))
            at = tuple(slice(int(low), int(low) + size) for low, size in zip(room[x, 0], shape))
            parts.append((held[x][at], arrays[x][at]) if room.any() else (held[x], arrays[x]))
        (a, A), (b, B), (c, C) = parts
        if rng.integers(2):  # of real numbers the same
            a, A = a.H.T, A.conj()
        if rng.integers(2):
            b, B = b.T.H, B.conj()
        if not beta:
            c.local.fill(np.nan)
        if not alpha:
            held[1].local.fill(np.nan)
        given = (b.T, a.T, c.T) if number % 2 else (a, b, c)
        try:
            drbench.multiply(*given, stationary=stationary, alpha=alpha, beta=beta)
        except UnsupportedError as error:  # sums of bfloat16 by MPI
            refused += 1
            assert dtype == KINDS[2] and not ctx.runtime.in_place and "cannot add" in str(error)
            drbench.multiply(*given, alpha=alpha, beta=beta)
        C[...] = alpha * (A @ B) + beta * C
        right = np.array_equal(host(held[2].to_global()), arrays[2])
        root, again = number % comm.size, drbench.redistribute(a, texts[1], copy=bool(number % 2))
        drbench.redistribute(again, back := ctx.zeros((m, k), texts[0], dtype))
        again, back = again.to_global(root), back.to_global(root)
        if comm.rank == root:
            right = right and all(np.array_equal(host(each), A) for each in (again, back))
        if not comm.allreduce(right) == comm.size:
            wrong.append([m, n, k, texts, dtype.name, stationary, how, alpha, beta, room.tolist()])
        # no rank frees memory that others still read
    del a, b, c, held, parts, given, again, back
    gc.collect()
    left = ctx.heap.taken
    ctx.close()
    left = comm.allreduce(left + LEFT())
    return {"wrong": wrong, "left": left, "refused": refused > 0}


#: What is counted: arenas laid out, programs made, and plans bound to matrices.
COUNTED = (
    (executor_base, "plan_arena"),
    (Multiplication, "trace"),
    (executor_base.ExecutorBase, "_bind"),
)


def repeated(comm):
    """A planned multiplication plans, lays out and allocates once."""
    ctx = opened(comm)
    A, B = (ctx.from_global(np.arange(64.0).reshape(8, 8) % 5, text) for text in ("row", "column"))
    C = ctx.zeros((8, 8), "block", "f8")
    p = ctx.plan(A, B, C)
    counts, taken, places = [], [], set()
    with ExitStack() as patches:
        spies = [
            patches.enter_context(
                mock.patch.object(owner, name, autospec=True, side_effect=getattr(owner, name))
            )
            for owner, name in COUNTED
        ]
        for _ in range(3):
            p()
            drbench.multiply(A, B, C)
            counts.append([each.call_count for each in spies])
            taken.append(ctx.heap.taken)
        for _ in range(5):  # results at the same address again, once the old one is freed
            D = A @ B
            places.add(D.location)
            del D
        other = ctx.zeros((8, 8), "block", "f8")
        drbench.multiply(A, B, other)  # elsewhere: bound again, not laid out
        right = np.array_equal(other.to_global(), C.to_global())
        counts.append([each.call_count for each in spies])
    arenas = {id(each.arena.base) for plan in ctx._plans.values() for each in plan._bound.values()}
    machine = Path(drbench.__file__).parents[1] / "launch/data/machines/pvc12.toml"
    explained = p.explain(machine)
    del A, B, C, other, p
    ctx.close()
    return {
        "explained": [explained.moved_bytes, explained.time_s, str(explained)],
        "counts": counts,
        "taken": len(set(taken)),
        "places": len(places),
        "arenas": len(arenas),
        "right": right,
    }


def bad_input(comm):
    """Each rank's wrong messages of mistakes, all its messages, and their seconds; afterwards the
    context still multiplies."""
    ctx, other = opened(comm, "256K"), opened(comm, "64K")
    found = mistakes(comm, ctx, other)
    gc.collect()
    other.close()
    ctx.close()
    return comm.gather(found)


def mistakes(comm, ctx, other):
    rank = comm.rank
    A = ctx.from_global(np.ones((4, 6), "f4"), "row")
    B = ctx.from_global(np.ones((6, 4), "f4"), "column")
    D = ctx.from_global(np.ones((6, 4), "f8"), "column")
    E = other.from_global(np.ones((6, 4), "f4"), "column")
    W = ctx.wrap(ctx.heap.array(A.local.shape, A.dtype), "row", A.shape)
    multiply = drbench.multiply
    W.fence()
    closed = opened(comm, "64K")
    F = closed.zeros((4, 4))
    closed.close()
    found = [
        (
            lambda: multiply(A, A),
            "UsageError shapes do not fit: A is 4x6, B 4x6, C 4x6; C (m×n) = A (m×k) · B (k×n).",
        ),
        (lambda: multiply(A, B, A), "UsageError shapes do not fit: A is 4x6, B 6x4, C 4x6;"),
        (
            lambda: multiply(A, D),
            "UsageError types differ: A is float32, B float64, C float32. Use one type for all.",
        ),
        (lambda: multiply(A, E), "UsageError 6x4 float32 column is of another context."),
        (lambda: multiply(A, B.local), "UsageError a Matrix is needed, got ndarray."),
        (lambda: multiply(A.local, B), "UsageError a Matrix is needed, got ndarray."),
        (
            lambda: multiply(F, F),
            "UsageError the context is closed. Make another with drbench.init.",
        ),
        (lambda: closed.empty((2, 2)), "UsageError the context is closed."),
        (
            lambda: multiply(A, B, stationary="D"),
            "UsageError stationary must be A, B, C or auto, got 'D'.",
        ),
        (
            lambda: multiply(A, B, "colum"),
            "UsageError layout 'colum' of (4, 4): unknown partition 'colum'; did you mean column",
        ),
        (
            lambda: multiply(A, B, "row", beta=1),
            "UsageError beta=1 adds to a matrix: give it as out.",
        ),
        *(
            (call, "UsageError a MaskedArray has more than elements")
            for call in (
                lambda: ctx.from_global(np.ma.ones((4, 4)), "row"),
                lambda: ctx.from_global([*np.ma.ones((4, 4))], "row"),
                lambda: ctx.wrap(np.ma.ones((2, 6)), "row", (4, 6)),
                lambda: W.put_tile((0, 0), np.ma.ones((2, 6))),
            )
        ),
        *(
            (
                lambda how=how: multiply(A, B, **how),
                "UsageError alpha and beta are finite numbers of float32",
            )
            for how in ({"alpha": -1e39}, {"alpha": np.nan}, {"beta": np.inf}, {"alpha": 10**400})
        ),
        (
            lambda: multiply(A, B, np.ma.ones((4, 4))),
            "UsageError a layout is a text or a Partition, got MaskedArray.",
        ),
        (
            lambda: multiply(A, ctx.from_global(np.ones((6, 6), "f4"), "row"), A),
            "UsageError multiply(C = A·B: ",
        ),
        (
            lambda: ctx.empty((1000, 1008), "row"),
            "OutOfMemory the heap is too small: an array of 500x1008 float32 needs 2016000 bytes",
        ),
        (
            lambda: multiply(
                ctx.from_global(np.ones((400, 1), "f4"), "row"),
                ctx.from_global(np.ones((1, 400), "f4"), "row"),
            ),
            "OutOfMemory rank 0: the heap is too small: an array of 200x400 float32 needs ",
        ),
        (
            lambda: ctx.wrap(np.ones((1, 1), "f4"), "row", (4, 6)),
            "UsageError rank {rank} of 4x6 float32 row has 2x6, the array to wrap is 1x1.",
        ),
        (
            lambda: drbench.redistribute(A, B),
            "UsageError 4x6 float32 row cannot become 6x4 float32 column",
        ),
        (lambda: A.to_global(root=99), "UsageError root must be a rank from 0 to 1, got 99."),
        (
            lambda: drbench.init(comm, "1M", transport="throttled:1,1"),
            "UsageError transport must be auto, direct or rma, got throttled.",
        ),
        (
            lambda: drbench.init(comm, "900T"),
            "OutOfMemory the heaps of the {ranks} ranks on rank 0's node need ",
        ),
        (
            lambda: ctx.plan(A, B, "row"),
            "UsageError a plan needs the matrix that it writes, got 'row'.",
        ),
        (
            lambda: multiply(A, B, np.ones((4, 4))),
            "UsageError a layout is a text or a Partition, got ndarray.",
        ),
        (
            lambda: A[0],
            "UsageError a part of a matrix is two ranges without steps, as A[0:4, 2:], got 0.",
        ),
        (
            lambda: A[:0.5],
            "UsageError a part of a matrix is two ranges, got slice(None, 0.5, None): slice",
        ),
        (
            lambda: multiply(A, B, alpha="two"),
            "UsageError alpha and beta are finite numbers of float32, got 'two'.",
        ),
        (lambda: A.to_global(root="0"), "UsageError root must be a rank from 0 to 1, got '0'."),
        (lambda: A.to_global(root=True), "UsageError root must be a rank from 0 to 1, got True."),
        (
            lambda: drbench.init("world"),
            "UsageError comm must be a communicator of mpi4py, got str.",
        ),
        (
            lambda: drbench.init(MPI.COMM_NULL),
            "UsageError comm must be a communicator of mpi4py, got COMM_NULL.",
        ),
        (
            lambda: drbench.init(comm, "1M", "mkl"),
            "UsageError blas must be auto or an object with a method gemm, got 'mkl'.",
        ),
        (
            lambda: drbench.init(comm, "1M", threads=0),
            "UsageError threads must be at least 1, got 0.",
        ),
    ]
    C = ctx.zeros((4, 4), "row")
    factors = "UsageError ranks differ: rank 0 has alpha="
    ours = "in multiply(C {}= A·B: 4x6 float32 row, "
    found += [
        (
            lambda: multiply(A, B, C, alpha=1 + rank),
            f"{factors}1.0 beta=0.0, rank 1 alpha=2.0 beta=0.0, {ours.format('')}",
        ),
        (
            lambda: multiply(A, B, C, alpha=0.5, beta=2 - rank),
            f"{factors}0.5 beta=2.0, rank 1 alpha=0.5 beta=1.0, {ours.format('+')}",
        ),
        (
            lambda: full_on_one(ctx),
            "OutOfMemory rank 1: the heap is too small: an array of 12x24 float32 needs 1152 bytes",
        ),
        # equal values in other types or signs are equal: no error
        (
            lambda: multiply(A, B, C, beta=-0.0 if rank else 0.0).to_global(root=np.int64(1)),
            "no error",
        ),
    ]
    one, two = ctx.zeros((4, 4), "row"), ctx.zeros((4, 4), "row")  # after C
    pair, copies = (one, two) if rank else (two, one), ctx.zeros((4, 4), "row/c2")
    matrices = "UsageError ranks differ: rank 0 has matrices no. "
    same = "3 in the order of making, rank 1 matrices no. 2"
    found += [
        (
            lambda: multiply(*pair, C),
            f"{matrices}3, 2, 1 in the order of making, rank 1 matrices no. 2, 3, 1 in ",
        ),
        (lambda: multiply(one, one.T if rank else one, C), "UsageError ranks call in different"),
        (
            lambda: pair[0].fence(),
            f"{matrices}{same} in the order of making, in fence(4x4 float32 row)",
        ),
        (
            lambda: drbench.redistribute(pair[0], "column"),
            f"{matrices}3, new in the order of making, rank 1 matrices no. 2, new ",
        ),
        (lambda: pair[0].to_global(), f"{matrices}{same}"),
        (
            lambda: copies.reduce_replicas(rank),
            "UsageError ranks call in different order: rank 0 reduce_replicas(4x4 float32 row/c2, "
            "origin=0), rank 1 reduce_replicas(4x4 float32 row/c2, origin=1)",
        ),
        (
            lambda: (copies.broadcast_replica if rank else copies.reduce_replicas)(),
            "UsageError ranks call in different order: rank 0 reduce_replicas(",
        ),
        (lambda: np.asarray(A), "UsageError a Matrix is distributed"),
        (lambda: ctx.from_global(A), "UsageError a Matrix is distributed"),
    ]
    other_order = (
        "UsageError ranks call in different order: rank 0 redistribute(4x6 float32 row to "
    )
    other_order += "4x6 float32 column), rank 1 multiply(C = A·B: 4x6 float32 row"
    mixed = lambda **how: multiply(A, B, **how) if rank else drbench.redistribute(A, "column")
    found += [(mixed, other_order), (lambda: mixed(alpha=2.0), other_order)]
    began, ranks = time.monotonic(), 1 + (SITUATION == "direct")  # on rank 0's node
    lines = [" ".join(message_of(call) or ["no error"]) for call, _ in found]
    wrong = [
        (line, text)
        for line, (_, text) in zip(lines, found)
        if not line.startswith(text.format(rank=rank, ranks=ranks))
        or "\n" in line
        or len(line) > 400
    ]
    seconds = time.monotonic() - began
    right = bool((host(multiply(A, B).to_global()) == 6).all() and (W.shape == A.shape))
    alike = [line for line, (_, text) in zip(lines, found) if "{rank}" not in text]
    return wrong, alike, seconds, right


def full_on_one(ctx):
    """A multiplication for which all ranks but the first have no memory."""
    A = ctx.from_global(np.ones((24, 2), "f4"), "row/c2")
    gc.collect()  # of the mistakes before: else their matrices may give memory back later
    hold = []
    while ctx.rank and (rest := ctx.heap._space.largest - 1024) > 0:
        hold.append(ctx.heap.array((1, rest), np.dtype("u1")))
    drbench.multiply(A, A.T, "row")
    return hold


def leaving(comm, *hows):
    """One rank leaves while the others multiply: their messages, and the seconds until then."""
    return {how: left(comm, how) for how in hows}


def left(comm, how):
    rank, found = comm.rank, None
    began = time.monotonic()
    try:
        with opened(comm, "64K") as ctx:
            A = ctx.from_global(np.ones((4, 4)), "row")
            A @ A
            if rank == 1 and how == "raises":
                raise ValueError("struck\nby the test")
            if rank == 1 and how == "closes":
                ctx.close()
            else:
                drbench.multiply(A, A, alpha=3.0)
    except (DrbenchError, ValueError) as error:
        found = [type(error).__name__, str(error)]
    return comm.gather([found, time.monotonic() - began, ctx.closed])


def outliving(comm):
    """Arrays that outlive their context stay as they are; those that do not cost nothing."""
    with opened(comm, "1M") as ctx:
        A = ctx.from_global(np.arange(36.0).reshape(6, 6), "row")
        kept = (A @ A).local[:, 1:]
        wanted = kept.copy()
    with opened(comm, "1M") as other:  # a second heap
        B = other.from_global(np.full((6, 6), 7.0), "row")
        B @ B
        del B
    return {
        "kept": comm.allreduce(np.array_equal(kept, wanted)) == comm.size,
        "freed": [ctx._freed, other._freed],
        "local": A.local.shape == (6 // comm.size, 6),
        "threads": waiting_threads(),
    }


def waiting_threads():
    """Threads of contexts that are there a moment later, too."""
    found = [each for each in threading.enumerate() if each.name == "drbench-last-resort"]
    for each in found:
        each.join(5)
    return sum(each.is_alive() for each in found)


def churn(comm, steps, seed):
    """Random allocations, releases and multiplications; no memory is lost."""
    ctx, rng, held, wrong = opened(comm, "512K"), np.random.default_rng(seed), [], 0
    texts = ["row", "column", "block", f"row/c{comm.size}"]
    for number in range(steps):
        what = rng.random()
        if what < 0.4 or len(held) < 2:
            n = int(rng.choice([1, 5, 12, 13, 31, 47]))
            array = whole(rng, (n, n), "f4")
            held.append((array, ctx.from_global(array, str(rng.choice(texts)))))
        elif what < 0.7:
            del held[int(rng.integers(len(held)))]
        else:
            (A, a), (B, b) = (held[int(x)] for x in rng.integers(0, len(held), 2))
            if a.shape == b.shape:
                c = drbench.multiply(a, drbench.multiply(b, b.T), str(rng.choice(texts)))
                wrong += not np.array_equal(host(c.to_global()), A @ (B @ B.T))
        if len(held) > 12:
            held = held[6:]
        if number % 50 == 0:
            array = a = A = b = B = c = None
            wanted = sum(max(1, -(-m.local.nbytes // 256)) * 256 for _, m in held)
            wrong += ctx.heap.taken != wanted
    array = a = A = b = B = c = None
    held.clear()
    left, largest = ctx.heap.taken, ctx.heap._space.largest == ctx.heap.nbytes
    ctx.close()
    left = comm.allreduce(left + LEFT())
    return {"wrong": comm.allreduce(wrong), "left": left, "whole": largest}


def groups(comm):
    """Several contexts at once: of all ranks, of halves, of one; in threads, too."""
    half = comm.Split(comm.rank % 2, comm.rank)
    contexts = [opened(each, "1M") for each in (comm, half, comm, type(comm).Clone(half))]
    results = []
    for number, ctx in enumerate(contexts):
        X = np.arange(30.0).reshape(5, 6) + number + ctx.size
        x = ctx.from_global(X, "row")
        results.append(bool(np.array_equal((x @ x.T).to_global(), X @ X.T)))
    found = [None] * 2

    def work(at, ctx):
        X = np.ones((8, 8)) * (at + 1)
        x = ctx.from_global(X, "column")
        found[at] = all((x @ x).to_global()[0, 0] == 8 * (at + 1) ** 2 for _ in range(20))

    threads = [threading.Thread(target=work, args=each) for each in enumerate(contexts[:2])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x = None
    for ctx in reversed(contexts):
        ctx.close()
    half.Free()
    return comm.allreduce([results.count(False) + found.count(False)])


def shared(comm):
    """What other libraries see of local arrays, and drbench of theirs, through DLPack and CUDA's
    array interface: the same memory."""
    ctx = opened(comm, "1M")
    A = ctx.zeros((6, 4), "row", "f4")
    seen = np.from_dlpack(A.local)
    seen[...] = np.arange(seen.size).reshape(seen.shape) + 10 * comm.rank  # as torch.from_dlpack

    class Tensor:
        """An array of a library that knows nothing but DLPack."""

        dtype, shape = seen.dtype, seen.shape

        def __dlpack__(self, **options):
            return A.local[:, 1:].__dlpack__(**options)

        def __dlpack_device__(self):
            return A.local.__dlpack_device__()

    class Described:
        """An array as torch and numba describe theirs."""

        def __init__(self, array):
            self.array, self.__cuda_array_interface__ = array, array.__cuda_array_interface__

    found = {"dlpack": address(ctx.wrap(Tensor(), "row", (6, 3)).local) - address(A.local)}
    if "/" in HOW:
        B = ctx.wrap(Described(A.local[1:, :2]), "row", (6 - comm.size, 2))
        found["described"] = address(B.local) - address(A.local)
    whole = A.to_global()
    found["kind"] = type(whole) is type(A.local)
    kept = [A.local[1:, 1:]]
    A = B = None
    taken = ctx.heap.taken  # a slice holds the place
    kept.clear()
    seen = None
    gc.collect()
    found["taken"] = [taken > 0, ctx.heap.taken]
    found["whole"] = host(whole).tolist()
    whole = None
    ctx.close()
    return {**found, "left": LEFT()}


def grown(comm):
    """A plan that the context has forgotten, after a larger one needed a larger arena."""
    ctx = opened(comm)
    arrays = [np.arange(float(n * n)).reshape(n, n) % 7 for n in (8, 96)]
    found, p = [], None
    for array in arrays:
        n = len(array)
        A, B = (ctx.from_global(array, text) for text in ("column", "row"))
        C = ctx.zeros((n, n), "block", "f8")
        p_plan = ctx.plan(A, B, C, stationary="A")
        p = p or p_plan
        p_plan()
        ctx._plans.clear()
        found.append(np.array_equal(host(C.to_global()), array @ array))
    p.matrices[2].local.fill(0)
    found.append(np.array_equal(host(p().to_global()), arrays[0] @ arrays[0]))
    A = B = C = p = p_plan = None
    ctx.close()
    return [comm.allreduce(found), LEFT()]


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    with ranks() as comm, FAKE as LEFT:
        found = globals()[what](comm, *map(json.loads, arguments))
        for device in OPENED:
            device.close()
        answer(comm, found)

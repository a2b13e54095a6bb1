"""ScaLAPACK's p?gemm and drbench on the same arrays, with the same descriptors: ``scalapack.py
SEED COUNT`` answers the cases that differ, or differ from NumPy."""

import ctypes
import json
import random
import sys

import numpy as np
from harness import answer, ranks

import drbench
from drbench.launch.libraries.scalapack import _grid, load

LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


def local_array(whole, tile, grid, source, at, pad, dtype):
    """A process's elements by columns, by the formulas of ScaLAPACK's TOOLS, and LLD."""
    indices = []
    for extent, size, count, first, own in zip(whole.shape, tile, grid, source, at):
        mine = [i for i in range(extent) if (first + i // size) % count == own]
        indices.append(mine)
    lld = max(1, len(indices[0])) + pad
    array = np.full((lld, len(indices[1])), np.nan, dtype, order="F")
    array[: len(indices[0])] = whole[np.ix_(*indices)]
    return array, lld, indices


def differing(comm, seed, count):
    library, _ = load()
    chance, wrong = random.Random(seed), []
    ctx = drbench.init(comm, heap="4M")
    for number in range(count):
        rows = chance.choice([d for d in range(1, comm.size + 1) if comm.size % d == 0])
        grid = rows, comm.size // rows
        at = divmod(comm.rank, grid[1])
        dtype = chance.choice(list(LETTERS))
        m, n, k = (chance.randint(1, 12) for _ in "mnk")
        forms = chance.choice("NTC"), chance.choice("NTC")
        shapes = [(m, k)[:: -1 if forms[0] != "N" else 1], (k, n)[:: -1 if forms[1] != "N" else 1]]
        shapes.append((m, n))
        factors = [chance.randint(-2, 2) for _ in "ab"]
        rng = np.random.default_rng([seed, number])
        wholes, arrays, descriptors, places = [], [], [], []
        with _grid(library, comm, *grid) as context:
            for shape in shapes:
                parts = rng.integers(-3, 4, (2, *shape))
                whole = (parts[0] + 1j * parts[1] if dtype[0] == "c" else parts[0]).astype(dtype)
                tile = chance.randint(1, 4), chance.randint(1, 4)
                source = tuple(map(chance.randrange, grid))
                local, lld, held = local_array(
                    whole, tile, grid, source, at, chance.randrange(3), dtype
                )
                wholes.append(whole)
                arrays.append(local)
                places.append(held)
                descriptors.append((1, context, *shape, *tile, *source, lld))
            theirs = arrays[2].copy(order="F")
            numbers = [ctypes.byref(ctypes.c_int(x)) for x in (m, n, k, 1)]
            scalars = np.array(factors, dtype)
            alpha, beta = (ctypes.c_void_p(scalars[x:].ctypes.data) for x in (0, 1))
            given = []
            for array, descriptor in zip((*arrays[:2], theirs), descriptors):
                numbers_of = (ctypes.c_int * 9)(*descriptor)
                given.append(
                    (ctypes.c_void_p(array.ctypes.data), numbers[3], numbers[3], numbers_of)
                )
            getattr(library, f"p{LETTERS[dtype]}gemm_")(
                *(form.encode() for form in forms),
                *numbers[:3],
                *(alpha, *given[0], *given[1]),
                *(beta, *given[2]),
            )
        A, B, C = (
            ctx.from_scalapack(descriptor, array, "{}x{}".format(*grid))
            for descriptor, array in zip(descriptors, arrays)
        )
        drbench.multiply(A, B, out=C, alpha=factors[0], beta=factors[1], transpose="".join(forms))
        ops = {"N": lambda x: x, "T": lambda x: x.T, "C": lambda x: x.conj().T}
        a, b = (ops[form](whole) for form, whole in zip(forms, wholes))
        right = (factors[0] * (a @ b) + factors[1] * wholes[2])[np.ix_(*places[2])]
        used = len(places[2][0])
        descriptor, array = C.to_scalapack(descriptors[2][1])
        same = (
            np.array_equal(arrays[2][:used], right)  # the user's own array
            and np.array_equal(theirs[:used], right)
            and np.array_equal(array, right)
            and tuple(descriptor[:4]) == descriptors[2][:4]
            and (descriptor[6:8].tolist() == list(descriptors[2][6:8]) or not right.size)
        )
        if not comm.allreduce(same) == comm.size:
            wrong.append([dtype, forms, m, n, k, grid, factors, *map(list, descriptors)])
    ctx.close()
    return wrong


if __name__ == "__main__":
    with ranks() as comm:
        answer(comm, differing(comm, *map(json.loads, sys.argv[1:])))

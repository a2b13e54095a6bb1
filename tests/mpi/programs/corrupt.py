"""Corrupt a right C before it is verified; answer every rank's verdict on each corruption, and its
record.

``corrupt.py FILL[:DTYPE] M[:few] WAY...``. Owners corrupt their tiles of C in place; the record is
that of the last way. Uniform fill verifies all rows of so small a C, or ``few``, as of a large one.
"""

import sys
from unittest import mock

import numpy as np
from harness import TRANSPORT, answer, fence, ranks

import drbench.launch.ranks.run_case
from drbench.launch.ranks.run_case import Case, run_case
from drbench.measure import verify as verifying

N, K = 80, 256
KIND, _, DTYPE = sys.argv[1].partition(":")
DTYPE = DTYPE or "float32"


def operands(fill, m):
    """A and B as filled, whole."""
    a, b = np.empty((m, K), DTYPE), np.empty((K, N), DTYPE)
    fill.into(a, "A", 0, 0)
    fill.into(b, "B", 0, 0)
    return a.astype(float), b.astype(float)


def one_element(c, a, b):
    c[11, 47] += 1


def least(c, a, b):
    """One element is the next number its type has, or the one before."""
    c[11, 47] = np.nextafter(c[11, 47], np.inf, dtype=DTYPE)


def nan(c, a, b):
    c[-2, 2] = np.nan


def infinity(c, a, b):
    c[1, 79] = np.inf


def all_nan(c, a, b):
    c[:] = np.nan


def lost_chunk(c, a, b):
    """A 64-deep part of the sum is missing in a 16x16 corner."""
    c[:16, 64:] -= a[:16, 64:128] @ b[64:128, 64:]


def twice(c, a, b):
    """A 64-deep part of the sum of one element was added twice."""
    c[5, 5] += a[5, :64] @ b[:64, 5]


def swapped_rows(c, a, b):
    c[[3, 4]] = c[[4, 3]]


def little(c, a, b):
    """One element is off by ten times what rounding can do."""
    bound = np.finfo(DTYPE).eps * (K + 2) * (np.abs(a[11]) @ np.abs(b[:, 47]))
    c[11, 47] += 10 * bound


def orthogonal(c, a, b):
    """A row is off by what the first of the two vectors of the verification does not see."""
    bound = min(4096, (1 << 28) // N)
    rng = np.random.default_rng([0, len(c), N, K])
    x = rng.integers(-bound, bound + 1, (N, 2))[:, 0]
    c[7, 3] += x[5]
    c[7, 5] -= x[3]


def zero(c, a, b):
    c[:] = 0


def nothing(c, a, b):
    """C stays as it is."""


WAYS = {
    way.__name__: way
    for way in (
        one_element,
        least,
        nan,
        infinity,
        all_nan,
        lost_chunk,
        twice,
        swapped_rows,
        little,
        orthogonal,
        zero,
        nothing,
    )
}


def main() -> None:
    (m, _, few), names = sys.argv[2].partition(":"), sys.argv[3:]
    m, cheap = int(m), 0 if few else verifying._CHEAP_CHECKS
    case = Case(
        m,
        N,
        K,
        a="column",
        b="block",
        c=f"tiles:{max(13, m // 40)}x17",
        options={"stationary": "B"},
        transport=TRANSPORT.kind,
        fill=KIND,
        dtype=DTYPE,
        iters=1,
        budget=0,
        warmup=0,
        threads=1,
    )
    verify = drbench.launch.ranks.run_case.verify
    verdicts = {}

    def corrupt_and_verify(matrix, problem, fill, *replicas):
        """Gather the right C from its tiles, corrupt it in every way, write it back, and verify."""
        a, b = operands(fill, m)
        right, own = np.zeros((m, N), DTYPE), matrix.own_blocks()
        for block, tile in sum(matrix.topology.comm.allgather(own), []):
            right[block.row0 : block.row1, block.col0 : block.col1] = tile
        assert abs(right - a @ b).max() < 1e-3
        for name in names:
            fence(matrix)
            corrupted = right.copy()
            WAYS[name](corrupted, a, b)
            for block, tile in own:
                tile[...] = corrupted[block.row0 : block.row1, block.col0 : block.col1]
            fence(matrix)
            verdict = verify(matrix, problem, fill, *replicas)
            verdicts[name] = [verdict.ok, repr(verdict.error), verdict.reason]
        return verdict

    corrupted = mock.patch.object(drbench.launch.ranks.run_case, "verify", corrupt_and_verify)
    sampled = mock.patch.object(verifying, "_CHEAP_CHECKS", cheap)
    with ranks() as comm, corrupted, sampled:
        record = run_case(case, comm)
        answer(
            comm,
            comm.gather({"verdicts": verdicts, "status": record.status, "reason": record.reason}),
        )


if __name__ == "__main__":
    main()
